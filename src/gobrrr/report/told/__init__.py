"""What does each noun say, before a form is chosen?"""
