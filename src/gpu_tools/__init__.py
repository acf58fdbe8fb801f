"""Measures, verifies and slims the GPU code of packages and environments."""
