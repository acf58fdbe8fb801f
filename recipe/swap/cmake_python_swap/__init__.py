"""Re-point a built PyTorch tree at another Python; ninja proves the result. Standard library only, CPython >= 3.10."""
