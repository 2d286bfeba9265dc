"""Convert graphs to LiteRT: lower ops to builtin operators, fuse them, and assemble the file."""
