"""Move the CTC decoder from the graph into the app."""
