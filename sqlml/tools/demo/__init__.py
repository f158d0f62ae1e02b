"""`sqlml demo`: three models score the flights of New York City, in SQL and in Python.

`job.py` contains the data, the models, the comparison and the timing.
"""
