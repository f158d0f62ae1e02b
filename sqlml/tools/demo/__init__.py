"""`sqlml demo`: three models score the flights of New York City, next to their own libraries.

`job.py` fits, scores and compares the models; `models.py` defines them.
"""

from sqlml.tools.demo.job import run

__all__ = ["run"]
