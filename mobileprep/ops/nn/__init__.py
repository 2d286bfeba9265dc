"""Ops of neural networks, as in `tf.nn`."""
