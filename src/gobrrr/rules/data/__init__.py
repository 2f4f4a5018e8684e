"""Why does the loop wait for its batch?"""
