"""Code that verbs share."""
