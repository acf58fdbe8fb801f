"""Configs: their names, the matrix they come from, choosing among them, and the packages they render to."""
