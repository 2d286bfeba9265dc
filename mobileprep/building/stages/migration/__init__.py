"""Find out which runtimes run a target's graph."""
