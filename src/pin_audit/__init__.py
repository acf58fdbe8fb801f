"""The audit: compare every pinned or vendored dependency of upstream, the recipe and conda-forge."""
