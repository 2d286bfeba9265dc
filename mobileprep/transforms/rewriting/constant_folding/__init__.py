"""Detection and evaluation of the constant parts of a graph."""
