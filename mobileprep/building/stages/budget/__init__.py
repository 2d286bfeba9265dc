"""Compare a model with the target's limits and device."""
