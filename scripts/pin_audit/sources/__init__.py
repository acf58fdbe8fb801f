"""Where versions come from: one module per source, all with the same ``read(request) -> SourceOutcome``."""
