"""Looking into models: summaries, drawings, differences."""
