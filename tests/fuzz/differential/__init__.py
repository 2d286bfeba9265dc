"""Random graphs, converted to LiteRT, and compared with our own interpreter."""
