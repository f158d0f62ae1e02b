"""Fitted pipelines of pyspark.ml, from a session or from the folder that they were saved in."""
