"""Importers of skorch, by which torch modules are scikit-learn estimators."""
