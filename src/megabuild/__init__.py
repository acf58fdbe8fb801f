"""Builds PyTorch for conda: configs, providers, plans, runs of the engine, published channels."""
