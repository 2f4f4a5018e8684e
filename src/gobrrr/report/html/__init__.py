"""How is a report shown as a page?"""
