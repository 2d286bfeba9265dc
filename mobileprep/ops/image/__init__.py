"""Ops on pictures, as in `tf.image`."""
