"""Plans a run: its options, its packages, the packages that exist, and an estimate."""
