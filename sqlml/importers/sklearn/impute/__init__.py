"""Importers of sklearn.impute."""
