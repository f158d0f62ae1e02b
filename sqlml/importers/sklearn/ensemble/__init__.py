"""Importers of sklearn.ensemble and sklearn.tree."""
