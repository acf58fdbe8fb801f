"""PyTorch Geometric's extensions without a compile: wheels from an index, believed only after a look inside."""
