"""Looks into the GPU code of packages and environments: what they hold, whether it fits, and how to be rid of some."""
