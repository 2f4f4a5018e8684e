"""The recording's own hot ops, timed as they are and as a remedy runs them: how much would it bring?"""
