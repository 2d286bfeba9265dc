"""What verbs, notebooks and build files ask for: one function a service, from values to values."""
