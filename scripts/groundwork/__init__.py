"""What all packages beside this one stand on: errors, files, processes, the network, package files, text."""
