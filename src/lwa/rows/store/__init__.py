"""Tables on disk: converted once to shards from which any row can be read."""
