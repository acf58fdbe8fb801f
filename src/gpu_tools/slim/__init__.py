"""Makes environments, packages and libraries smaller by removing code and files that the user does not need."""
