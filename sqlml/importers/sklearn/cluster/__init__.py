"""Importers of sklearn.cluster."""
