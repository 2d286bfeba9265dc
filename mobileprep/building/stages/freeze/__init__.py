"""Freeze a model: from its source to a graph without variables."""
