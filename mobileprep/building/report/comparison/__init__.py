"""Compare two builds of a target, and find the recipe keys that caused the differences."""
