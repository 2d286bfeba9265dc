"""Details of TensorFlow 1.15 that its results depend on."""
