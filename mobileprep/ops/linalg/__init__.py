"""Linear algebra, as in `tf.linalg`."""
