"""Spark as an engine: binding and registration on the driver, scoring in the Python workers.

Input: a SparkSession. Output: a `SparkEngine` with functions that are Arrow UDFs without pandas.
Programs are broadcast to the workers.

Read first: `engine.py` (driver), then `worker.py` (workers).
"""
