"""What is told of several runs of one program?"""
