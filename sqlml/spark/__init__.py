"""Models in Spark SQL: a session, a catalog in a shared directory, and distributed training.

Input: a live `pyspark.sql.SparkSession` and the directory of the models. Output: a `SparkSession`
that understands the statements and functions of models.

Read first: `session.py` (statements), `plain_functions.py` (from calls to Spark's SQL), and
`catalog_directory.py` (how several sessions share a catalog of files). `trainers.py` trains models;
boosted trees are trained in the executors on the rows of `training_rows.py`. The engine is in
`sqlml.udfs.spark`.
"""
