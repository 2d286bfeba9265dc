"""A module for each format, which registers a function that builds cases."""
