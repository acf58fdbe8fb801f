"""The base of all other packages: errors, files, processes, the network, package files, text."""
