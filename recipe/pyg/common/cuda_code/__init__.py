"""Reads and judges CUDA code in ELF files. Standard library only: recipes copy it into the tests of packages."""
