"""Small programs that a recipe of training makes cheaper, and what it costs (docs/fix/training-recipes.md)."""
