"""Functions of a graph's library: bodies, calls, and control flow."""
