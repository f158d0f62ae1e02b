"""Models in Spark SQL: a session, its catalog in a shared directory, and distributed training.

Comes in: a live `pyspark.sql.SparkSession` and the directory of the models. Goes out: a
`SparkSession` that understands the statements and functions of models.

Read first: `session.py` (the statements), `plain_functions.py` (from calls to Spark's SQL), and
`catalog_directory.py` (how several sessions share a catalog of files). `trainers.py` trains models,
boosted trees in the executors on the rows of `training_rows.py`. The engine itself is in
`sqlml.udfs.spark`.
"""
