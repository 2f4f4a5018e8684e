"""In which other forms is a report written?"""
