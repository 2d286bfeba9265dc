"""Accuracy metrics."""
