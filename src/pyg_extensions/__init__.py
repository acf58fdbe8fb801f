"""PyTorch Geometric's extensions: the table of them, and how their wheels and sources are found and verified."""
