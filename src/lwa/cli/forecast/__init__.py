"""What a fit will cost, estimated before it runs: `lwa plan`."""
