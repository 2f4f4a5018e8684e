"""Which figures make a Machine: ceilings, peaks, links, and which of them to doubt?"""
