"""rattler-build in a process of its own: starts and ends it, follows its logs, cleans up after a killed one."""
