"""Runs a plan as a graph of tasks, which build, test, verify and publish packages."""
