"""Workflows of CI services that build configs: what runs in which job, and what goes from one to the next."""
