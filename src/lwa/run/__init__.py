"""One call of `lwa.sample`: its stages in order, from settings to a result."""
