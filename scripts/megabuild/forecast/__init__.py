"""How long a run takes, and still will: a model of its work, learned from what earlier ones took."""
