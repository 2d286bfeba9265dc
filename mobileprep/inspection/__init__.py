"""Looking into graphs: summaries, what they cost, drawings, and which nodes of two are the same."""
