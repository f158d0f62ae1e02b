"""A process that scores the models of the zoos in DuckDB, and prints the kernels that they need.

python -m tests.contract.kernels_in_use
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import duckdb
import pandas as pd

import sqlml
from sqlml.backends.native.jit.compile_ahead import KnownKernel
from sqlml.backends.native.jit.specialise import list_kernels_in_use
from tests.e2e import family_zoo, model_zoo

CALLS = (
    *("predict('m', *)", "predict_proba('m', *)", "predict_score('m', *)", "transform('m', *)"),
    "explain('m', *)",
)


def zoo() -> Iterator[tuple[Any, pd.DataFrame]]:
    """Each fitted model with rows of its own columns."""
    for name in model_zoo.MODELS:
        features = model_zoo.MODELS[name].features
        yield model_zoo.model(name), model_zoo.rows(name)[list(features)]
    for name, entry in family_zoo.FAMILIES.items():
        yield family_zoo.model(name), family_zoo.view(family_zoo.rows(False), entry)


def score(con: sqlml.Session, rows: pd.DataFrame) -> None:
    """All that the model `m` gives of some rows and of many, as DOUBLE and as FLOAT."""
    floats = [n for n in rows if rows[n].dtype.kind == "f"]
    con.register("double_rows", rows)
    con.register("float_rows", rows.astype(dict.fromkeys(floats, "float32")))
    for table in ("double_rows", "float_rows"):
        for size in (3, 3000):
            source = f"(FROM {table}, range(30) LIMIT {size})"
            for call in CALLS:
                with suppress(sqlml.errors.SqlmlError, duckdb.Error):
                    con.execute(f"SELECT {call} FROM {source}").fetchall()


def main() -> None:
    """Score, and print."""
    warnings.simplefilter("ignore")
    with sqlml.connect() as con:
        for model, rows in zoo():
            con.create_model("m", model, or_replace=True, verify=False)
            score(con, rows)
    used = (
        KnownKernel(f.__module__, f.__name__, signature) for f, signature in list_kernels_in_use()
    )
    print("\n".join(sorted(kernel.to_line() for kernel in used)))


if __name__ == "__main__":
    main()
