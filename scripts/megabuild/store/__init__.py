"""A store for finished work, shared by machines: packages, and the compiled tree that they are built from."""
