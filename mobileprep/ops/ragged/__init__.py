"""Ops on ragged tensors, as in `tf.ragged`."""
