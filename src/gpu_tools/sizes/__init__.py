"""Measures the sizes of environments, wheels and conda packages by package, kind of content and GPU architecture."""
