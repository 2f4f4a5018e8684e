"""Where in torch are events noted without the program noticing?"""
