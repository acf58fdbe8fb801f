"""What is uploaded of a config: which packages in which order, whether conda-forge would take them, which logs."""
