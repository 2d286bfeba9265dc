"""Compare graphs of the build with the source on samples."""
