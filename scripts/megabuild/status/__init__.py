"""The status of runs: kept while they go on, shown, and read from anywhere."""
