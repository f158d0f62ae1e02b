"""Estimators of our own, which stored models name by their paths."""
