"""Importers of sklearn.decomposition and sklearn.cross_decomposition."""
