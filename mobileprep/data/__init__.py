"""Samples from files of all the kinds that recipes name."""
