"""A store that machines share: finished packages, and the compiled tree that they are built from."""
