"""FORM nodes: the trees are rows of a table, and the answers those of the CASE form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sqlml
from benchmarks.database_connections import Connection
from sqlml.errors import BackendError
from tests.databases.conftest import opened
from tests.databases.families import FAMILIES, NAMES, boosted, model, rows
from tests.databases.test_predictions import exported


@pytest.fixture(scope="module")
def con() -> Any:
    with sqlml.connect() as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Any:
    with opened("postgres") as connection:
        yield connection


def fitted_and_columns(name: str) -> tuple[Any, list[str]]:
    return (boosted(name), NAMES) if ":" in name else (model(name), FAMILIES[name][2])


@pytest.mark.by_day(3)
@pytest.mark.parametrize(
    "name",
    ["deep tree", "forest", "histograms", "lightgbm", "ordinal", "multi:softprob", "count:poisson"],
)
def test_nodes_answer_as_cases(con: Any, server: Connection, name: str, tmp_path: Path) -> None:
    fitted, columns = fitted_and_columns(name)
    server.run("DROP VIEW IF EXISTS m_scores")
    server.run("DROP TABLE IF EXISTS m_nodes")
    server.load("seen", rows(10_000)[columns].head(1500).assign(id=np.arange(1500)))
    options = "postgres, TABLE seen, COLUMNS (id)"
    cases = exported(con, fitted, tmp_path / "m.sql", options).strip().rstrip(";")
    server.run(exported(con, fitted, tmp_path / "m.sql", f"{options}, FORM nodes"))
    got = server.frame(f"SELECT * FROM m_scores ORDER BY id /* {name} */")  # the driver prepares
    assert got.equals(server.frame(f"SELECT * FROM ({cases}) q ORDER BY id"))
    assert got["predicted_label"].nunique() > 1 and got.notna().all(axis=None)


def test_the_view_does_not_grow_with_the_trees(con: Any, tmp_path: Path) -> None:
    text = exported(con, boosted("reg:squarederror"), tmp_path / "m.sql", OPTIONS)
    table, view = text.split("CREATE VIEW")
    assert table.count("\n(0, ") == 31  # 30 trees, and what the sum begins with
    assert len(view) < 6000


OPTIONS = "postgres, TABLE seen, FORM nodes"


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("linear", OPTIONS, "the model has no trees; write FORM select"),
        (
            "sets of categories",
            OPTIONS,
            "does not take trees that test sets of categories; write FORM",
        ),
        ("forest", "mariadb, TABLE seen, FORM nodes", "MariaDB has no FORM nodes; write FORM"),
    ],
)
def test_what_has_no_such_form(
    con: Any, name: str, options: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match=said):
        exported(con, model(name), tmp_path / "m.sql", options)
    assert not (tmp_path / "m.sql").exists()
