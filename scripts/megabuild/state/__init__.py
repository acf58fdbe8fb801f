"""Where runs stand: kept while they go on, and read from anywhere."""
