"""Build environments from a conda channel, or from this machine, PyPI and Debian."""
