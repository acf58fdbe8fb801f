"""Conda channels, asked through py-rattler."""
