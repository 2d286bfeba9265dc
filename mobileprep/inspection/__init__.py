"""Inspect graphs: summaries, costs, benchmarks, drawings, and differences."""
