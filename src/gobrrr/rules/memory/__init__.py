"""Does memory grow, run out, or hold what nobody needs?"""
