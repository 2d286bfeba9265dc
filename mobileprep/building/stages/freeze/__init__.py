"""Freeze a model: convert its source to a graph without variables."""
