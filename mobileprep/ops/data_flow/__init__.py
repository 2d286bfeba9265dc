"""TensorArrays and TensorLists: what loops fill and read."""
