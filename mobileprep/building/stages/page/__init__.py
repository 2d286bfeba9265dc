"""Collect what the report page shows of a graph's nodes."""
