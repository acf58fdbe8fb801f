"""Plans a run: its options, its packages, what exists already, what it will take."""
