"""A conda channel made on the spot: this machine's Pythons, compilers and programs, and PyPI's wheels."""
