"""What a run costs: operations, bytes, memory, time."""
