"""Fourier transforms, as in `tf.signal`."""
