"""The sources of versions: `READERS` of each module are functions that take a request, by the source's name.

Functions that read only the audited repository are in `OWN_READERS`.
"""
