"""Runs and tables of ``benchmark``."""
