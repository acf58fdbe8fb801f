"""The sources of versions: each module names its own in `SOURCES`, by the source's name."""
