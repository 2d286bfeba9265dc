"""How well outputs fit what they should be."""
