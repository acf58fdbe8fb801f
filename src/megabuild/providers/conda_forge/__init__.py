"""Build environments from conda channels."""
