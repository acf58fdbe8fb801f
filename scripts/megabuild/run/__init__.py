"""Carrying a plan out: tasks of one graph, each healed, built, followed, explained, looked into and published."""
