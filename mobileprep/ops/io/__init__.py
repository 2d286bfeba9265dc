"""Ops that parse records, as in `tf.io`."""
