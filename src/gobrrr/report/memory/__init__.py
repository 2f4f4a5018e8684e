"""How does gobrrr tell which memory ran out, and which batch fits and serves best?"""
