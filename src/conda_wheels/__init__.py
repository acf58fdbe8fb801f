"""Make wheels, and an index for pip, uv and poetry, from conda packages that megabuild has built."""
