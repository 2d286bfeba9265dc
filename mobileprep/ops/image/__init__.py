"""Ops on images, as in `tf.image`."""
