"""Compiled models that a stranger wrote neither crash a client nor read outside."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer, StandardScaler

import sqlml
from sqlml.backends.native.jit.processor_levels import LIBRARY
from sqlml.backends.native.kernel_calls import INPUT, Call, Rows
from sqlml.udfs.duckdb.native.extension_file import (
    ARRAY_PATCH,
    KERNEL_PATCH,
    WORD_PATCH,
    Address,
    DataWriter,
)
from tests.e2e.macro_checks import CONFIG
from tests.support.runtime_clients import ask_client

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with models of many kinds, and a table that all of them can score."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("forged") / "shop.duckdb"
    x = pd.DataFrame(rng.normal(size=(300, 3)), columns=["a", "b", "c"])
    x["city"] = rng.choice(["Bonn", "Köln", "a long name of a city"], 300)
    x["note"] = rng.choice(["good and cheap", "late, but good", "never again"], 300)
    y = np.where(x.a + x.b * x.c > 0, "yes", "no")
    numbers = x[["a", "b", "c"]]
    encoder = make_column_transformer(
        (OneHotEncoder(), ["city"]), (StandardScaler(), ["a", "b", "c"])
    )
    models: dict[str, tuple[Any, Any]] = {
        "forest": (RandomForestClassifier(8, max_depth=4, random_state=0), numbers),
        "deep": (RandomForestRegressor(4, random_state=0), numbers),
        "boosted": (HistGradientBoostingRegressor(max_iter=20), numbers),
        "encoded": (make_pipeline(encoder, LogisticRegression()), x.drop(columns="note")),
        "network": (make_pipeline(StandardScaler(), MLPClassifier((5,), max_iter=20)), numbers),
        "near": (KNeighborsClassifier(3, algorithm="kd_tree"), numbers),
        "bayes": (GaussianNB(), numbers),
        "splines": (make_pipeline(SplineTransformer(), LinearRegression()), numbers),
        "monotone": (IsotonicRegression(out_of_bounds="clip"), x.a),
        "texts": (make_pipeline(TfidfVectorizer(), LogisticRegression()), x.note),
    }
    with sqlml.connect(path, config=CONFIG) as con:
        for name, (model, columns) in models.items():
            is_number = "Regress" in type(model).__name__ or name == "splines"
            model.fit(columns, x.a * 2 if is_number else y)
            options = {"inputs": [columns.name]} if isinstance(columns, pd.Series) else {}
            con.create_model(name, model, verify=False, **options)
        con.register("rows", x)
        con.execute("CREATE TABLE t AS FROM rows; INSERT INTO t (a) VALUES (NULL)")
    return path


def run_forged(database: Path, seed: int, count: int) -> int:
    """Score with damaged contents in a process of its own; return how many were accepted."""
    arguments = [str(database), str(LIBRARY), str(seed), str(count)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.forged_models", *arguments],
        cwd=ROOT,
        env={**os.environ, "MALLOC_PERTURB_": "165"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.rpartition("\r")[2]
    return int(done.stdout)


def test_damaged_models_with_right_checksums(database: Path) -> None:
    assert 0 < run_forged(database, 0, 300) < 300


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 51))
def test_a_hundred_thousand_damaged_models(database: Path, seed: int) -> None:
    assert 0 < run_forged(database, seed, 2000) < 2000


@pytest.mark.parametrize("forgery", ["constant rows", "rows as constants"])
def test_rows_and_constants_are_not_confused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgery: str
) -> None:
    encode = DataWriter._encode_arguments

    def forge(argument: Any) -> Any:
        if forgery == "constant rows" and isinstance(argument, Rows) and argument.buffer == INPUT:
            shape = (1000 * argument.width,) if argument.is_flat else (1000, argument.width)
            return np.zeros(shape, argument.dtype)
        if forgery == "rows as constants" and isinstance(argument, np.ndarray):
            flat = argument.ndim == 1
            return Rows(INPUT, argument.dtype, argument.shape[-1], is_flat=flat)
        return argument

    def encode_forged(writer: DataWriter, call: Call) -> Any:
        forged = replace(call, arguments=tuple(map(forge, call.arguments)))
        return encode(writer, forged)

    monkeypatch.setattr(DataWriter, "_encode_arguments", encode_forged)
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    model = make_pipeline(SplineTransformer(), LinearRegression()).fit(x, x.a)
    path = tmp_path / "forged.duckdb"
    with sqlml.connect(path, config=CONFIG) as con:
        con.create_model("m", model, verify=False)
    code = f"""
import duckdb
con = duckdb.connect({str(path)!r}, config={{"allow_unsigned_extensions": "true"}})
con.execute("LOAD '{LIBRARY}'")
try:
    con.execute("SELECT predict('m', {{'a': 1, 'b': 2, 'c': 3}}) FROM range(7)").fetchall()
except duckdb.Error as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False
    )
    assert "the file is damaged" in done.stdout, (done.stdout, done.stderr)


@pytest.mark.parametrize("kind", [ARRAY_PATCH, KERNEL_PATCH, WORD_PATCH])
@pytest.mark.parametrize("value", [1 << 60, -1])
def test_addresses_that_no_function_uses_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, value: int
) -> None:
    join = DataWriter._join

    def join_forged(writer: DataWriter, functions: int) -> bytes:
        writer.add_words([Address(kind, value)])
        return join(writer, functions)

    monkeypatch.setattr(DataWriter, "_join", join_forged)
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path, config=CONFIG) as con:
        con.create_model("m", LinearRegression().fit([[0.0], [1.0]], [0, 1]), inputs=["a"])
    (error,) = ask_client(path, ("SELECT predict('m', {'a': 1})",))
    assert "damaged" in error
