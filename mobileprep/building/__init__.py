"""Stages, their plan, the engine that runs them, the cache, and reports."""
