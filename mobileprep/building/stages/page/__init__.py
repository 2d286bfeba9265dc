"""Collect the node data for the report page."""
