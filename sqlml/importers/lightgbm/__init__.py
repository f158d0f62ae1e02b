"""LightGBM: estimators, Boosters and text files -> outputs of a Program.

`importer.py` is the entry point. It reads the text of an estimator or file (`document.py`), adds
the trees (`forest.py`), and ends with the steps of `importers/boosters.py`. lightgbm itself is not
imported. To cover another objective, add a row to `OBJECTIVES` and a test against LightGBM.
"""
