"""Measure what quantization does to each tensor."""
