"""Random numbers, as in `tf.random`."""
