"""Ops on sparse tensors, as in `tf.sparse`."""
