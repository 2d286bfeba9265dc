"""Scales of channels that a graph can change without computing anything else: finding, applying."""
