"""Costs of a run: operations, bytes, memory, and time."""
