"""CatBoost: estimators, JSON files and binary files -> outputs of a Program.

`importer.py` is the entry point. It reads the document of an estimator or file (`document.py`),
computes the columns that the trees (`forest.py`) read, and ends with the steps of
`importers/boosters.py`. `features.py` reads the columns, the splits and the statistics of
categories. Only the child process of `binary.py` imports catboost. To cover another loss function,
add a row to `LOSSES` and a test against CatBoost.
"""
