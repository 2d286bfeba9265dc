"""Facts about ops by TensorFlow version: definitions, signatures, kernel classes, source files."""
