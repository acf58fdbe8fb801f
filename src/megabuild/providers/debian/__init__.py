"""PyTorch and its build dependencies from Debian's archive, in a private root folder."""
