"""The public names complete in a shell, and type checkers find misspelt methods and keywords."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import get_type_hints

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

import sqlml
from sqlml.statements.model_options import AT_CREATION, STORED, ModelOptions, TrainingOptions
from sqlml.training.options.request import parse_request
from sqlml.training.options.sqlml_options import ALIASES, TRAINING_OPTIONS

X, Y = np.arange(8.0).reshape(4, 2), np.array([0.0, 1.0, 0.0, 2.0])

SCRIPT = """
import sqlml

con = sqlml.connect()
description = con.create_model("m", object(), inputs=["x"], on_null="null", verify=False)
print(description.metrics, description.name)
con.train("m", "linear_reg", "SELECT 1", label="y", max_depth=3, library_options={"tol": 1e-3})
con.execute("SELECT 1").fetchall()
con.sql("SELECT 1").df()
con.register("t", object()).begin()
con.models().fetchall()
scorer = sqlml.compile(object(), ["a"], backend="native", threads=1)
print(scorer.predict([[1.0]], threads=2).shape, scorer.evaluate([[1.0]], [1.0]))
"""

MISTAKES = (
    "sqlml.conect()",
    "con.exeucte('SELECT 1')",
    "con.create_model('m', object(), input=['x'])",
    "con.create_model('m', object(), on_nul='null')",
    "con.train('m', 'linear_reg', 'SELECT 1', lable='y')",
    "con.create_model('m', object()).metric",
    "con.create_model('m', object()).execute('SELECT 1')",
    "con.sql('SELECT 1').feetch()",
    "con.models().feetch()",
    "con.model('m').input",
    "sqlml.compile(object(), bakend='native')",
    "scorer.predict([[1.0]], thread=2)",
    "scorer.predikt([[1.0]])",
)


def test_the_package_shows_its_public_names_alone() -> None:
    assert dir(sqlml) == sorted(sqlml.__all__)


def test_a_session_completes_its_own_methods_and_those_of_duckdb() -> None:
    with sqlml.connect() as con:
        assert {"create_model", "train", "sql", "fetchall", "register"} <= set(dir(con))
        assert not [n for n in dir(con) if n.startswith("_") and not n.startswith("__")]
        con.create_model("m", LinearRegression().fit(X, Y), inputs=["a", "b"])
        relation = con.sql("SELECT predict('m', 1.0, 2.0)")
        assert {"df", "fetchall", "filter", "batches"} <= set(dir(relation))


def test_a_scorer_completes_what_its_model_can_do() -> None:
    regressor = sqlml.compile(LinearRegression().fit(X, Y))
    classifier = sqlml.compile(LogisticRegression().fit(X, Y.astype(int)))
    assert "predict" in dir(regressor)
    assert {"predict_proba", "classes_", "transform"}.isdisjoint(dir(regressor))
    assert {"predict_proba", "classes_", "evaluate", "explain"} <= set(dir(classifier))


def test_a_registered_model_is_described() -> None:
    with sqlml.connect() as con:
        model = LinearRegression().fit(X, Y)
        described = con.create_model("m", model, inputs=["a", "b"])
        assert (described.name, described.version, dict(described.metrics)) == ("m", 1, {})
        assert str(described) == str(con.model("m"))
        assert con.add_version("m", model, inputs=["a", "b"]).version == 2
        assert con.add_version("m", model, number=7, inputs=["a", "b"]).version == 7
        assert con.create_model("m", model, inputs=["a", "b"], if_not_exists=True).version == 1
        assert con.create_model("m", model, inputs=["a", "b"], or_replace=True).version == 8


def test_a_trained_model_is_described_with_its_metrics() -> None:
    with sqlml.connect() as con, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        query = "SELECT i AS x, 2 * i AS y FROM range(100) r(i)"
        described = con.train("m", "linear_reg", query, label="y", library_options={"tol": 1e-3})
        r2_score = described.metrics["r2_score"]
        assert r2_score is not None
        assert r2_score > 0.99
        assert "metrics" in described._repr_html_()
        with pytest.raises(sqlml.errors.ConfigError, match="seed is also among library_options"):
            con.train("n", "linear_reg", query, label="y", seed=1, library_options={"seed": 2})


def test_chains_of_earlier_versions_still_run() -> None:
    with sqlml.connect() as con:
        described = con.create_model("m", LinearRegression().fit(X, Y), inputs=["a", "b"])
        with pytest.warns(DeprecationWarning, match="call execute on the session"):
            assert described.execute("SELECT 1").fetchall() == [(1,)]  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match="no attribute 'exeucte'"):
            described.exeucte  # type: ignore[attr-defined]  # noqa: B018


def test_typed_options_are_those_that_are_accepted() -> None:
    assert set(get_type_hints(ModelOptions)) == {*STORED, *AT_CREATION}
    own = set(get_type_hints(TrainingOptions)) - set(get_type_hints(ModelOptions))
    assert set(TRAINING_OPTIONS) - {"label", "model_type"} <= own
    assert own.isdisjoint(ALIASES)
    parameters = own - set(TRAINING_OPTIONS)
    kinds = ("linear_reg", "boosted_tree_classifier", "random_forest_classifier", "kmeans", "pca")
    kinds = (*kinds, "dnn_classifier")
    for parameter in parameters:
        assert any(_is_accepted(parameter, kind) for kind in kinds), parameter


def _is_accepted(parameter: str, kind: str) -> bool:
    """Return whether the name of a parameter is known, whatever its value."""
    for library in (None, "sklearn", "xgboost", "lightgbm", "catboost"):
        options: dict[str, object] = {"model_type": kind, parameter: 1}
        if library is not None:
            options["library"] = library
        if kind not in ("kmeans", "pca"):
            options["label"] = "y"
        try:
            parse_request(options, STORED)
        except sqlml.errors.SqlmlError as error:
            if "option" in str(error) and "unknown" not in str(error):
                if "belongs to" in str(error) or "library" in str(error):
                    continue
                return True
            continue
        return True
    return False


def test_type_checkers_find_misspelt_names(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "\n".join(MISTAKES) + "\n")
    config = f"--config-file={root / 'pyproject.toml'}"  # strict, and its cache is filled
    done = subprocess.run(
        [sys.executable, "-m", "mypy", config, str(script)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = {int(line) for line in re.findall(r"script\.py:(\d+): error:", done.stdout)}
    first = SCRIPT.count("\n") + 1
    assert lines == set(range(first, first + len(MISTAKES))), done.stdout
