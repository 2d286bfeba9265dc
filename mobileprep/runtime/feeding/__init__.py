"""Conversion of files, numbers, and strings to the arrays and ranges of a graph's inputs."""
