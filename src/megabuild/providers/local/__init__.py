"""The local channel's packages: this machine's Pythons, compilers and programs."""
