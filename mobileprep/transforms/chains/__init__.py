"""Chains of transforms, and warnings about them."""
