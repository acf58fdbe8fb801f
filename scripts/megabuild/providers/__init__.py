"""Where build environments come from: a conda channel, or what this machine, PyPI and Debian offer."""
