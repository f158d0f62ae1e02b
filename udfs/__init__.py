"""Engines: how a compiled Program becomes a function that SQL can call."""
