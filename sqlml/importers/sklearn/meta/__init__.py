"""Importers of estimators that contain other estimators.

`compose.py` has pipelines, column transformers, searches and transformed targets. `members.py`
imports one inner estimator and reads the outputs like the outer estimator does.
"""
