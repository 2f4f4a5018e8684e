"""How is an experiment run and judged?"""
