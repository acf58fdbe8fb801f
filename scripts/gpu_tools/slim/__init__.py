"""Finished libraries and environments made smaller: what one GPU, or one way to use them, does not need is left out."""
