"""Ops on texts, as in `tf.strings`."""
