"""One run of a config: plan, preflight, fingerprints, progress, verification, publishing, summary."""
