"""PyTorch's official wheels, from which packages are made without a compile."""
