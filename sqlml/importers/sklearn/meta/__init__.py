"""Importers of estimators that contain other estimators.

`compose.py` has pipelines, column transformers, searches and transformed targets; `members.py`
imports one inner estimator and reads its outputs as the outer one does. The others are named after
what they do.
"""
