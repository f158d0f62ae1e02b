"""Importers of sklearn.preprocessing."""
