"""Ops that create, split, join, and rearrange tensors."""
