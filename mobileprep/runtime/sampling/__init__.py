"""Samples for a graph: random ones, based on known facts about its inputs, or from arrays."""
