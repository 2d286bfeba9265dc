"""From files, numbers and texts to the arrays that a graph is fed, and to their ranges."""
