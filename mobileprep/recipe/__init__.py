"""Read, check, and resolve recipes."""
