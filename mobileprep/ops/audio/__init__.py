"""Ops on sound, as in `tf.audio`."""
