"""What a run will do: what it was asked for, which packages come of it, what exists already, what it will take."""
