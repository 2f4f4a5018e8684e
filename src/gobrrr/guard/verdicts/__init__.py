"""Are the candidate's numbers still right?"""
