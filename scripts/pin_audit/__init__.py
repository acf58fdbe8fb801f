"""The audit: every pinned or vendored dependency of upstream, this recipe and conda-forge, side by side."""
