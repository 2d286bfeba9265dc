"""Generate code that runs the model in an app."""
