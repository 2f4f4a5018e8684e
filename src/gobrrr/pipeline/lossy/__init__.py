"""How are edits that change the numbers searched behind the user's gate, and proven?"""
