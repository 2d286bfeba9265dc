"""Whether a graph runs on the runtimes of phones, and what to change where it does not."""
