"""Importers of sklearn.feature_extraction."""
