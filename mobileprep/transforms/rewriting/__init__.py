"""Code shared by transforms: layers, ops merged into them, and constant evaluation."""
