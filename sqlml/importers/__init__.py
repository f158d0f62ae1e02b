"""Importers: fitted objects and model files -> Program. `registry.py` says what is covered."""
