"""Samples for a graph: random, from its knowledge of the inputs, or from arrays."""
