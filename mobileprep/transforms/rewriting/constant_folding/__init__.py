"""Finds what of a graph is constant, and computes it."""
