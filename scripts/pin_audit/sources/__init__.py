"""The sources of versions: each has functions ``read…(request) -> SourceOutcome``."""
