"""What the verb `benchmark` measures, and how it tells of it."""
