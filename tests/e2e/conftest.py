"""A small database with models, shared by the tests of SQL behaviour."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sqlml
from tests.support import cascaded as cascaded_model

ROWS = 500


def customers() -> pd.DataFrame:
    """500 customers: numbers with gaps, strings with gaps, an id that no model reads."""
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "tenure": rng.integers(0, 72, ROWS).astype(float),
            "charges": rng.normal(60, 20, ROWS).round(2),
            "plan": rng.choice(["basic", "pro", "max"], ROWS),
            "region": rng.choice(["north", "south", "it's"], ROWS),
        }
    )
    frame.loc[rng.random(ROWS) < 0.1, "tenure"] = np.nan
    frame.loc[rng.random(ROWS) < 0.1, "region"] = np.nan
    return frame


FEATURES = ["tenure", "charges", "plan", "region"]


def churn_pipeline(frame: pd.DataFrame) -> object:
    """A pipeline with imputation and one-hot encoding, fitted on customers."""
    target = np.where(
        (frame.tenure.fillna(30) < 25) ^ (frame.plan == "max") ^ (frame.charges > 75), "yes", "no"
    )
    numeric = ["tenure", "charges"]
    text = ["plan", "region"]
    prepare = make_column_transformer(
        (SimpleImputer(strategy="median"), numeric),
        (
            make_pipeline(
                SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
            ),
            text,
        ),
    )
    return make_pipeline(prepare, LogisticRegression(max_iter=500)).fit(frame[FEATURES], target)


@pytest.fixture(scope="session")
def frame() -> pd.DataFrame:
    return customers()


@pytest.fixture(scope="session")
def churn(frame: pd.DataFrame) -> object:
    return churn_pipeline(frame)


@pytest.fixture(scope="session")
def value_model(frame: pd.DataFrame) -> object:
    """A regression on two numeric columns, charges before tenure."""
    known = frame.dropna()
    return LinearRegression().fit(known[["charges", "tenure"]], known.charges * 2 - known.tenure)


@pytest.fixture(scope="session")
def database(
    frame: pd.DataFrame,
    churn: object,
    value_model: object,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A file with the customers and the models `churn` and `value`, made once."""
    path = tmp_path_factory.mktemp("database") / "memory.duckdb"
    newer = {"storage_compatibility_version": "v1.4.0"}  # 1.5 has no macros of ours in older files
    with sqlml.connect(path, config=newer) as session:
        session.register("frame", frame)
        session.execute("CREATE TABLE customers AS SELECT * FROM frame")
        session.unregister("frame")
        session.create_model("churn", churn, verify=False)
        session.create_model("value", value_model, verify=False)
    return path


@pytest.fixture
def con(database: Path, tmp_path: Path) -> Iterator[sqlml.Session]:
    """A session on a copy of `database`, which is called memory as if it were in memory."""
    path = tmp_path / "memory.duckdb"
    shutil.copyfile(database, path)
    with sqlml.connect(path) as session:
        yield session


@pytest.fixture
def plain(con: sqlml.Session) -> Iterator[duckdb.DuckDBPyConnection]:
    """A plain DuckDB connection to the database of `con`, without a session."""
    with con.connection.cursor() as own:
        yield own


@pytest.fixture(scope="session")
def cascaded_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a model, its cascade, and rows."""
    made = tmp_path_factory.mktemp("cascades") / "c.duckdb"
    with sqlml.connect(str(made)) as con:
        con.create_model("m", cascaded_model.model()[0])
        for name, rows, seed in (("train", 6_000, 1), ("fresh", 5_000, 99)):
            frame, labels = cascaded_model.table(rows, seed)
            con.register("frame", frame.assign(id=range(rows), y=labels))
            con.execute(f"CREATE TABLE {name} AS FROM frame")
        con.execute(cascaded_model.LEARN)
    return made


@pytest.fixture
def cascaded(cascaded_file: Path, tmp_path: Path) -> Iterator[sqlml.Session]:
    """A copy of that database."""
    copy = tmp_path / "c.duckdb"
    copy.write_bytes(cascaded_file.read_bytes())
    with sqlml.connect(str(copy)) as made:
        yield made
