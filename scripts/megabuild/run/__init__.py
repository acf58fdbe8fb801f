"""Runs a plan: a graph of tasks, each of which is built, followed, verified and published."""
