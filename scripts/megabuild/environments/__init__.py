"""Making use of what was built."""
