"""The sources of versions: `READERS` of each module are functions that take a request, by the source's name."""
