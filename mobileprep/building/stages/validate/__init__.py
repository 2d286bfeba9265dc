"""Compare the model that ships with the source by metrics and limits."""
