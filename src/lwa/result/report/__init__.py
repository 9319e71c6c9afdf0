"""A run as one self-contained page of HTML: `fit.report(path)`, `lwa report RUN`."""
