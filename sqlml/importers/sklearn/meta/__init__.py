"""Importers of estimators that hold other estimators."""
