"""PyTorch Geometric's extensions, built after PyTorch's packages and against them, several at once."""
