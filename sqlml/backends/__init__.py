"""Backends: they compile a Program to something that runs; `base.py` holds the contract."""
