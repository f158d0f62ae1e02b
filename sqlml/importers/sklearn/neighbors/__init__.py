"""Importers of sklearn.neighbors."""
