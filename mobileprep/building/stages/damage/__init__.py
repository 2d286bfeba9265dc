"""Measure the quantization error of each tensor."""
