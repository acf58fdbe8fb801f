"""The picture of runs: where time, cores and memory went, as one HTML page."""
