"""rattler-build in a process of its own: starting it, ending it, reading its logs, healing what a killed one left."""
