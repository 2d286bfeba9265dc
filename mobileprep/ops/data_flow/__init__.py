"""TensorArrays and TensorLists, the lists of loops."""
