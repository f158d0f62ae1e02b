"""XGBoost: estimators, Boosters, JSON and UBJSON files -> outputs of a Program.

`importer.py` is the entry point. It reads the document of an estimator or file (`document.py`),
adds the trees (`forest.py`) to the base margin, and ends with the steps of
`importers/boosters.py`. xgboost itself is not imported. To cover another objective, add a row to
`OBJECTIVES` and a test against XGBoost.
"""
