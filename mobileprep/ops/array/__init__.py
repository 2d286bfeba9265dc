"""Ops that make, cut, join and rearrange tensors."""
