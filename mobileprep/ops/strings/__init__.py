"""Ops on strings, as in `tf.strings`."""
