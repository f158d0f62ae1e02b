"""Estimators fitted by their libraries: rounds, checkpoints, searches."""
