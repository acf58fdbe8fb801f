"""Build environments from this machine's programs: the provider `local`, and rehearsals."""
