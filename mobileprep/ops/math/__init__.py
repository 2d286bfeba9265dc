"""Arithmetic, reductions, and products, as in `tf.math`."""
