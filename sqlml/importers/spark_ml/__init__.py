"""Spark ML: fitted pipelines of pyspark.ml, live or in their folders -> outputs of a Program.

`importer.py` is the entry point. `folder.py` and `live.py` read a folder or an object to the same
`SparkModel` (`pipeline_stages.py`), whose learned values `contents.py` describes. `predictors.py`
and `feature_stages.py` convert the stages. Spark is not needed to read folders. To cover another
stage, add it to `PACKAGES`, its learned values to `contents.py`, and a function to a table of
`importer.py`.
"""
