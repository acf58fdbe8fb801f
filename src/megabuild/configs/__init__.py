"""Configs: the matrix that generates them, their files, overrides, and the packages that they render to."""
