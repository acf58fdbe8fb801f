"""Verifies the libraries of packages, wheels and environments against torch, CUDA, Python and GPUs."""
