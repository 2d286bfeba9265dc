"""The recipe: read, checked with every problem at its place, and resolved for each target."""
