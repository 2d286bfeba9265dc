"""Run a graph on data and measure it."""
