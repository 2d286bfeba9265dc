"""Migrate a graph to mobile runtimes: whether it runs, and the required changes."""
