"""Generates C++ and Python bindings from native_functions.yaml."""
