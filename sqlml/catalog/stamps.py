"""Stamps: what a model is now, told in one look at a view.

Of each model there is a view of one column, whose name is another one after each change of the
model. The engine tells a view's columns without reading a row, and of two transactions that change
one model the second fails, as it shall: there is a view for each model, so those that change
different ones do not meet.
"""

from __future__ import annotations

from uuid import uuid4

from sqlml.catalog.connection import Connection


def read_stamp(connection: Connection, schema: str, key: str) -> tuple[str, ...] | None:
    """The stamp of the model `key`; None where there is none."""
    return connection.columns(_view(schema, key))


def write_stamp(connection: Connection, schema: str, key: str) -> None:
    """Give the model `key` a new stamp."""
    connection.write(f'CREATE OR REPLACE VIEW {_view(schema, key)} AS SELECT 1 AS "{uuid4().hex}"')


def drop_stamp(connection: Connection, schema: str, key: str) -> None:
    """Take the stamp away from the model `key`."""
    connection.write(f"DROP VIEW IF EXISTS {_view(schema, key)}")


def _view(schema: str, key: str) -> str:
    name = key.replace('"', '""')
    return f'{schema}."stamp_{name}"'
