"""Calibration: run a graph over data and derive the ranges of its tensors."""
