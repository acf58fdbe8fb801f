"""Package indexes of the simple API (PEP 503, 691) as pip is configured to use them."""
