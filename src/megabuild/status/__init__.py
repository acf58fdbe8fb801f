"""The status of runs: recorded during a run, read by any process, shown."""
