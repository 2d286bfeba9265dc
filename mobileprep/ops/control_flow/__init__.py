"""Switch, Merge, loops, conditionals, variables, and nodes without arithmetic."""
