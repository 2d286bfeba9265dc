"""Samples for a graph: drawn from what the graph tells of its inputs, or taken from arrays."""
