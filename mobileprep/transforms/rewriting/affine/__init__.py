"""What scales and shifts a layer's output, found and merged into the layer."""
