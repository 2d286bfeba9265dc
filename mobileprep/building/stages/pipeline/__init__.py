"""Cost of running the models of a pipeline for one input."""
