"""Seeded, grammar-aware fuzzing: run every verb on damaged files of every format."""
