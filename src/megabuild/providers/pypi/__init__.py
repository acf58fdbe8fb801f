"""Resolve, lock and download wheels, PyTorch's and NVIDIA's among them, and turn them into conda packages."""
