"""Compare LiteRT with the interpreter on random graphs."""
