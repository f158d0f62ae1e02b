"""Spark ML: fitted pipelines of pyspark.ml, live or in their folders -> outputs of a Program.

`importer.py` is the entry point. `folder.py` reads a folder and `live.py` reads an object as a
`SparkModel` (`pipeline_stages.py`). `contents.py` reads the learned values. `predictors.py` and
`feature_stages.py` convert the stages. Spark is not needed to read folders. To cover another stage,
extend `PACKAGES` and `contents.py`, and add a function to a table of `importer.py`.
"""
