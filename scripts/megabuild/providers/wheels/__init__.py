"""Packages from PyPI wheels: resolve and lock, download and verify, turn into conda packages."""
