"""How are samples computed once and kept?"""
