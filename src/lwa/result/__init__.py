"""What a run returns: draws, their summary, the report, and passes that polish them."""
