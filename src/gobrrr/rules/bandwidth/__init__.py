"""Does memory traffic bind the step that could be spared?"""
