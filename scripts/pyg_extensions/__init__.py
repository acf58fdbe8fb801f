"""PyTorch Geometric's extensions: their table, their wheels and sources, and their content."""
