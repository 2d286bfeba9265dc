"""Move preprocessing from the graph into the app."""
