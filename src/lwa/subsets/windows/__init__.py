"""U as a window of consecutive steps of a sequence."""
