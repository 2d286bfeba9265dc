"""Switch, Merge, loops, conditionals, variables, and what has no arithmetic."""
