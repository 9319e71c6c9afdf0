"""What a run will cost, before it runs: `lwa plan`."""
