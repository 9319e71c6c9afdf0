"""How good draws are: autocorrelation, running summaries, checks of short chains, and the certificate."""
