"""Argument checks: decide whether a kernel may be called with the constants of a foreign file."""
