"""Count a source model, to compare the models of a recipe."""
