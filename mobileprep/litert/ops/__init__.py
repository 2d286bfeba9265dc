"""Lowerings of TensorFlow's ops, a module a family."""
