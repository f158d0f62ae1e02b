"""Spark as an engine: binding and registration on the driver, scoring in the Python workers.

Comes in: a SparkSession. Goes out: a `SparkEngine`, whose functions are pandas-free Arrow UDFs.
Programs travel to the workers by broadcast.

Read first: `engine.py` (driver), then `worker.py` (workers).
"""
