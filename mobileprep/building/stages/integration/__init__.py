"""Generate the code by which an app runs the model."""
