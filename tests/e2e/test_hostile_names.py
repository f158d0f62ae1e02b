"""Names, labels and texts of any characters reach the engine as what they are."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import sqlml
from sqlml.types import fold
from tests.e2e.macro_checks import CONFIG

PIECES = st.sampled_from(
    [
        '"',
        "'",
        ";",
        "--",
        "/*",
        "*/",
        "\n",
        "\t",
        "\\",
        "%",
        "$1",
        "?",
        "{",
        "}",
        "(",
        ")",
        ",",
        ":=",
    ]
    + [
        "DROP TABLE t",
        "predict('x', *)",
        "::",
        "NULL",
        "a",
        "B",
        "ß",
        "İ",
        "日本",
        "é",
        "0",
        " ",
        "=",
        "#",
    ]
)
TEXTS = st.lists(PIECES, min_size=1, max_size=5).map("".join)
MODELS = TEXTS.map(lambda text: text.replace("/", "")).filter(bool)


def name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


USUAL = settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    phases=(Phase.explicit, Phase.generate),
)
HOSTILE = given(
    model=MODELS,
    other=MODELS,
    columns=st.tuples(TEXTS, TEXTS),
    labels=st.tuples(TEXTS, TEXTS),
    text=TEXTS,
)


@USUAL
@HOSTILE
@example(
    model='a"; DROP TABLE t; --',
    other="x'y",
    columns=("b'; --", 'c"d'),
    labels=("it's\n", '"no"; --'),
    text="\\'",
)
def test_they_are_quoted_wherever_they_go(
    tmp_path_factory: pytest.TempPathFactory, **names: Any
) -> None:
    check(tmp_path_factory, **names)


@pytest.mark.nightly
@settings(USUAL, max_examples=200, derandomize=False)
@HOSTILE
def test_many_are_quoted_wherever_they_go(
    tmp_path_factory: pytest.TempPathFactory, **names: Any
) -> None:
    check(tmp_path_factory, **names)


def check(
    tmp_path_factory: pytest.TempPathFactory,
    model: str,
    other: str,
    columns: tuple[str, str],
    labels: tuple[str, str],
    text: str,
) -> None:
    first, second = columns
    assume(len({c.lower() for c in columns} | {c.casefold() for c in columns}) <= 4)
    assume(first.lower() != second.lower() and first.casefold() != second.casefold())
    assume(labels[0] != labels[1] and model.lower() != other.lower())
    assume(not {"I", "İ"} & {*model, *other, *first, *second})  # lower case differs by language
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=list(columns))
    fitted = LogisticRegression().fit(frame, np.where(frame[first] > 0, labels[1], labels[0]))
    want = fitted.predict(frame).tolist()
    proba = fitted.predict_proba(frame)[:, list(fitted.classes_).index(labels[1])]
    with sqlml.connect(config=CONFIG) as con:
        con.register("given", frame)
        con.execute("CREATE TABLE t AS FROM given")
        con.create_model(model, fitted, comment=text)

        def rows(sql: str) -> list[tuple[object, ...]]:
            found: list[tuple[object, ...]] = con.execute(sql).fetchall()
            return found

        call = f"predict({literal(model)}, *)"
        assert [r[0] for r in rows(f"SELECT {call} FROM t")] == want
        named = f"{name(second)} := {name(second)}, {name(first)} := {name(first)}"
        assert [r[0] for r in rows(f"SELECT predict({literal(model)}, {named}) FROM t")] == want
        chosen = f"predict_proba({literal(model)}, *, class := {literal(labels[1])})"
        got = [r[0] for r in rows(f"SELECT {chosen} FROM t")]
        np.testing.assert_allclose(np.array(got, float), proba, rtol=1e-9)
        table_form = f"FROM ml_predict(MODEL {name(model)}, TABLE t) SELECT predicted_label"
        assert [r[0] for r in rows(table_form)] == want
        con.execute(f"CREATE VIEW {name(text)} AS SELECT {call} AS {name(text)} FROM t")
        assert [r[0] for r in rows(f"FROM {name(text)}")] == want
        with con.connection.cursor() as plain:
            plain_call = f"SELECT predict({literal(model)}, t) FROM t"
            assert [r[0] for r in plain.execute(plain_call).fetchall()] == want
        quoted = name(model)
        con.execute(f"ALTER MODEL {quoted} SET TAG {name(text)} = {literal(text)}")
        con.execute(f"ALTER MODEL {quoted} SET ALIAS champion = 1")
        con.execute(f"COMMENT ON MODEL {quoted} IS {literal(labels[0])}")
        for ask in (
            "DESCRIBE MODEL",
            "SHOW CREATE MODEL",
            "SHOW VERSIONS IN MODEL",
            "EXPLAIN MODEL",
        ):
            assert rows(f"{ask} {quoted}")
        found = rows("SELECT name, comment, tags FROM sqlml.models")
        assert found == [(model, labels[0], {fold(text): text})]
        con.execute(f"ALTER MODEL {quoted} RENAME TO {name(other)}")
        again = f"SELECT predict({literal(other + '@champion')}, *) FROM t"
        assert [r[0] for r in rows(again)] == want
        path = tmp_path_factory.mktemp("made") / "m.sql"
        con.execute(f"EXPORT MODEL {name(other)} TO {literal(str(path))}")
        with duckdb.connect() as alone:
            alone.register("given", frame)
            alone.execute(path.read_text())
            scored = f"SELECT {name(other)}({name(first)}, {name(second)}) FROM given"
            assert [r[0] for r in alone.execute(scored).fetchall()] == want
        con.execute(f"DROP MODEL {name(other)}")
        assert rows("SELECT count(*) FROM t") == [(30,)]
        assert rows("SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'main'") == [(1,)]
