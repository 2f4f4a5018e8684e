"""Where does time go?"""
