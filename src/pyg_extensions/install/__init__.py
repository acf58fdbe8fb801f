"""Install extensions into an existing environment: inspect it, find wheels or compile, verify."""
