"""Compare the metrics of several data sets with each other."""
