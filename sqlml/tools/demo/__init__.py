"""`sqlml demo`: three models score the flights of New York City, next to their own libraries.

`job.py` has everything: the data, the models, the comparison and the timing.
"""
