"""PyTorch Geometric's extensions: what is known of them, where wheels and sources of them are, and what is inside."""
