"""Algorithm 1 at work: cohorts of chains, here, on workers or on a device."""
