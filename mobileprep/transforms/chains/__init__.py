"""Transforms run one after another, and what to tell of the whole chain."""
