"""What builds have left on the disk: what it is for, what it costs to have again, and removing it."""
