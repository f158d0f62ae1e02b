"""Compare the functions of an exported extension with the session that exported it, in any client.

The session writes its predictions to a Parquet file beside the columns. A script of plain SQL loads
the extension and counts the rows where the two differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

import sqlml

CALLS = {
    "": "predict",
    "_proba": "predict_proba",
    "_score": "predict_score",
    "_transform": "transform",
    "_explain": "explain",
}
"""Suffix of an exported function -> the function in sqlml that returns the same."""

UNSIGNED = {"allow_unsigned_extensions": "true"}


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported file, and the script that compares it: one row per function, with a count."""

    extension: Path
    script: str
    functions: tuple[str, ...]


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def describe(extension: Path, name: str) -> Mapping[str, str]:
    """The rows of `<name>_info()`."""
    with duckdb.connect(config=UNSIGNED) as con:
        con.execute(f"LOAD '{extension}'")
        return dict(con.execute(f"FROM {quote(name + '_info')}()").fetchall())


def export(session: sqlml.Session, names: Sequence[str], table: str, folder: Path) -> Exported:
    """Export models, and predictions for the rows of `table`, whose columns they read by name."""
    extension, rows = folder / "shipped.duckdb_extension", folder / "expected.parquet"
    models = ", ".join(map(quote, names))
    session.execute(f"EXPORT MODELS ({models}) TO '{extension}'")
    expected, checks, functions = [], [], []
    for name in names:
        info = describe(extension, name)
        columns = [key.removeprefix("feature ") for key in info if key.startswith("feature ")]
        arguments = ", ".join(map(quote, columns))
        for suffix, call in CALLS.items():
            function = name + suffix
            if f"macro {function}_row" not in info:
                continue
            functions.append(function)
            expected.append(f"{call}('{name}', t) AS {quote('expected ' + function)}")
            checks.append(
                f"SELECT '{function}', count(*) FILTER ({quote(function)}({arguments}) "
                f"IS DISTINCT FROM {quote('expected ' + function)}), count(*) FROM e"
            )
    # An expression of SQL may round differently in the last digit.
    session.execute("SET sqlml_backend = 'native'")
    session.execute(f"COPY (SELECT *, {', '.join(expected)} FROM {table} AS t) TO '{rows}'")
    session.execute("RESET sqlml_backend")
    script = f"LOAD '{extension}'; CREATE TABLE e AS FROM '{rows}'; "
    return Exported(extension, script + " UNION ALL ".join(checks), tuple(functions))


def count_differences(exported: Exported) -> dict[str, int]:
    """Run the script in this process' DuckDB; return the number of other results per function."""
    with duckdb.connect(config=UNSIGNED) as con:
        *first, last = exported.script.split("; ")
        for statement in first:
            con.execute(statement)
        return {name: differing for name, differing, _ in con.execute(last).fetchall()}
