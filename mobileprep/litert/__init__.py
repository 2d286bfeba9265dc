"""Graphs to LiteRT's models: each op lowered to builtins, then fused, then written as records."""
