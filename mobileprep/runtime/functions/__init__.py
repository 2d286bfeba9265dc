"""Functions of a graph's library: their bodies, calls of them, and control flow made of them."""
