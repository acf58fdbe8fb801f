"""Cores, memory and disk of this machine, and what a build will want of them."""
