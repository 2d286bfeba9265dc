"""What exists only because TensorFlow 1.15 did it so."""
