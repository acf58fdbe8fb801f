"""A run as jobs of a cluster's batch system."""
