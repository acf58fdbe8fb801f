"""Runs rattler-build in a separate process, follows its logs, and cleans up after killed runs."""
