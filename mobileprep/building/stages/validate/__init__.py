"""Compare the published model with the source by metrics and limits."""
