"""Determine the ranges of a float graph's tensors."""
