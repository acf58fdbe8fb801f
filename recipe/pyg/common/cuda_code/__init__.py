"""Reads CUDA code in ELF files and judges it. Standard library only: it goes into packages' tests."""
