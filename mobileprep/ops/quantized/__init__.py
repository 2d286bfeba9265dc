"""Ops on eight-bit integers, and to and from them."""
