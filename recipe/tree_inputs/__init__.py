"""Notice by content which files of the environment changed, and remove the outputs that saw others.

Standard library only, CPython >= 3.10.
"""
