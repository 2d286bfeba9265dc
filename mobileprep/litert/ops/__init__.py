"""Lowerings of TensorFlow ops, one module per family."""
