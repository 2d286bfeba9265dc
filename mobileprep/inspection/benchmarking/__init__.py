"""What `benchmark` measures, and how it tells of it."""
