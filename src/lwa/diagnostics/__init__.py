"""How well a chain has mixed."""
