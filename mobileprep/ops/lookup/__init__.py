"""Lookup tables, as in `tf.lookup`."""
