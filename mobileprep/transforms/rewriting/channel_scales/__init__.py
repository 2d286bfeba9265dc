"""Channel scales that do not change the results of a graph."""
