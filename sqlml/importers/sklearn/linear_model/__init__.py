"""Importers of sklearn.linear_model."""
