"""Megabuild driver for the PyTorch family of conda packages."""
