"""How much work do ops do that pass over their elements: copies, arithmetic, norms, reductions?"""
