"""Packages from wheels: resolve and lock, download, turn into conda packages; PyTorch's own and NVIDIA's."""
