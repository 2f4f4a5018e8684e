"""How much work do products do: matrices, convolutions, attention, recurrence, factorisations?"""
