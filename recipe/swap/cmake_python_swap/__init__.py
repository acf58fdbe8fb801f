"""Re-point a built PyTorch tree at another Python, proved by ninja. Standard library only, CPython >= 3.10."""
