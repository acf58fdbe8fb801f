"""The wheel provider: official PyTorch wheels, and NVIDIA's wheels under conda-forge's package names."""
