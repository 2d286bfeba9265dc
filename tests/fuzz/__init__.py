"""Seeded, grammar-aware fuzzing: of each format small valid files, damaged, through every verb."""
