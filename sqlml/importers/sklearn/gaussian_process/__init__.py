"""Importers of sklearn.gaussian_process."""
