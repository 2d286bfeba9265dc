"""Run one step of a chain of transforms."""
