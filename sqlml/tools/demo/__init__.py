"""`sqlml demo`: three models score the flights of New York City, next to their own libraries."""

from sqlml.tools.demo.command import main
from sqlml.tools.demo.job import run

__all__ = ["main", "run"]
