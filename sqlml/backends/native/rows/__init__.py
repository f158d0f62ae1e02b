"""Kernels of operators on numeric rows: linear layers, distances, look-ups, scalers and others."""
