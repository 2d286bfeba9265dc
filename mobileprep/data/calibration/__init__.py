"""Ranges of tensors: observing a run over data, and what comes of it."""
