"""Determine which runtimes can run a target's graph."""
