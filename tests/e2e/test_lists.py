"""Columns of lists, maps, structs and pairs in SQL: they score as their rows do in the source."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer, StandardScaler

import sqlml
from sqlml import errors
from sqlml.types import Array

WORDS = ["good", "", "Straße", "日本", 'a"b\\c', "it's", "a=b", "x\0y", "\n\t\x1f\x7f", "\u2028"]
NUMBERS = [0.0, -0.0, 0.1, 1 / 3, 1e300, 5e-324, -2.5, 1e16, 123456789.0]
CHUNK = 2048

known_and_unknown = pytest.mark.filterwarnings("ignore:unknown class")


def tags(rows: int, seed: int = 0, pool: list[Any] = WORDS) -> list[list[Any]]:
    rng = np.random.default_rng(seed)
    return [[pool[k] for k in rng.integers(0, len(pool), n)] for n in rng.integers(0, 6, rows)]


def weights(rows: int, seed: int = 0) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    return [{w: NUMBERS[int(rng.integers(0, 9))] for w in row} for row in tags(rows, seed)]


def transformed(db: Any, name: str, column: str, source: str = "t") -> Array:
    rows = db.execute(f"SELECT transform('{name}', {column}) FROM {source} ORDER BY id").fetchall()
    return np.array([row[0] for row in rows])


def create(db: Any, arrow: pa.Table) -> None:
    """Table t of the Arrow table's rows."""
    db.execute("CREATE TABLE t AS SELECT * FROM arrow")


def dense(made: Any) -> Array:
    return np.asarray(made.toarray() if hasattr(made, "toarray") else made)


@known_and_unknown
def test_lists_of_strings_over_several_chunks() -> None:
    rows = tags(3 * CHUNK + 17)
    binarizer = MultiLabelBinarizer().fit(rows[:500])
    hasher = FeatureHasher(20, input_type="string")
    table = pa.table({"id": range(len(rows)), "labels": rows, "items": rows})
    with sqlml.connect() as db:
        db.execute("SET threads = 3")
        create(db, table)
        db.create_model("m", binarizer)
        db.create_model("h", hasher)
        for name, model in (("m", binarizer), ("h", hasher)):
            got = transformed(db, name, "*")
            np.testing.assert_array_equal(got, dense(model.transform(rows)))
        listed = db.execute("DESCRIBE MODEL m").fetchall()
        assert ("input 1", "labels VARCHAR[]") in listed


@known_and_unknown
@pytest.mark.parametrize(
    "kind",
    "TINYINT UBIGINT HUGEINT FLOAT DOUBLE DECIMAL(9,2) BOOLEAN INTEGER BIGNUM".split(),
)
def test_lists_of_numbers_equal_as_in_python(kind: str) -> None:
    model = MultiLabelBinarizer().fit([[0, 1, 2.5, 7, 2**53 + 1, 2**64 - 1]])
    rows: list[list[Any]] = [[0, 1], [7, 1], [1, 1]]
    if kind in ("FLOAT", "DOUBLE", "DECIMAL(9,2)"):
        rows.append([2.5, 3.25])
    if kind in ("HUGEINT", "UBIGINT", "BIGNUM"):
        rows += [[2**53 + 1, 2**53], [2**64 - 1, 2**63]]
    if kind == "BOOLEAN":
        rows = [[False, True], [True, True]]
    size = 2 if kind == "INTEGER" else ""  # an array too
    values = ", ".join(f"({i}, {row}::{kind}[{size}])" for i, row in enumerate(rows))
    with sqlml.connect() as db:
        db.create_model("m", model)
        got = transformed(db, "m", "l", f"(VALUES {values}) t(id, l)")
    np.testing.assert_array_equal(got, model.transform(rows))


def test_numbers_that_are_no_class_are_left_out() -> None:
    model = MultiLabelBinarizer().fit([[1, 2]])
    with sqlml.connect() as db:
        db.create_model("m", model)
        one = "SELECT transform('m', [1, 'nan'::DOUBLE, 'inf', 3.5, NULL])"
        assert db.execute(one).fetchone() == ([1.0, 0.0],)
        assert db.execute("SELECT transform('m', [NULL])").fetchone() == ([0.0, 0.0],)
        assert db.execute("SELECT transform('m', [])").fetchone() == ([0.0, 0.0],)
        assert db.execute("SELECT transform('m', ['1', '2'])").fetchone() == ([0.0, 0.0],)
        assert db.execute("SELECT transform('m', ?)", [[2, 5]]).fetchone() == ([0.0, 1.0],)
        assert ("input 1", "labels BIGINT[]") in db.execute("DESCRIBE MODEL m").fetchall()


def test_maps_to_every_bit() -> None:
    rows = weights(CHUNK + 9)
    model = FeatureHasher(12)
    entries = pa.array([list(row.items()) for row in rows], pa.map_(pa.string(), pa.float64()))
    texts = [json.dumps(row) for row in rows]
    table = pa.table({"id": range(len(rows)), "items": entries, "j": texts})
    with sqlml.connect() as db:
        create(db, table)
        db.create_model("h", model)
        want = dense(model.transform(rows))
        np.testing.assert_array_equal(transformed(db, "h", "*"), want)
        np.testing.assert_array_equal(transformed(db, "h", "t.items"), want)
        np.testing.assert_array_equal(transformed(db, "h", "items := j::JSON"), want)
        narrow = "CAST(items AS MAP(VARCHAR, FLOAT))"
        got = transformed(db, "h", narrow, "(FROM t WHERE NOT contains(j, 'e+'))")
        kept = [row for row, text in zip(rows, texts, strict=True) if "e+" not in text]
        cut = [{k: float(np.float32(v)) for k, v in row.items()} for row in kept]
        np.testing.assert_array_equal(got, dense(model.transform(cut)))


@pytest.mark.parametrize(
    ("value", "row"),
    [
        ("MAP {'a': 'x', 'b': ''}", {"a": "x", "b": ""}),
        ("MAP {'a': true, 'b': false}", {"a": True, "b": False}),
        ("MAP {'a': 1.10::DECIMAL(9, 2)}", {"a": 1.1}),
        ("MAP {'a': 170141183460469231731687303715884105727}", {"a": 2**127 - 1}),
        ("MAP {'a': 'nan'::DOUBLE, 'b': '-inf'}", {"a": np.nan, "b": -np.inf}),
        ("MAP {'a'::ENUM('a', 'b]'): 1}", {"a": 1}),
        ("MAP {}", {}),
        (
            "{'a': 1, 'b c': 'x', 'D': 0.1::FLOAT}",
            {"a": 1, "b c": "x", "D": float(np.float32(0.1))},
        ),
        ("{'a': true, 'b': 2.5}", {"a": True, "b": 2.5}),
        ("t", {"n": 3, "s": "q"}),
    ],
)
def test_a_map_or_a_struct_is_a_dict(value: str, row: dict[str, Any]) -> None:
    model = FeatureHasher(5)
    with sqlml.connect() as db:
        db.create_model("h", model)
        (got,) = db.execute(
            f"SELECT transform('h', {value}) FROM (SELECT 3 AS n, 'q' AS s) t"
        ).fetchone()
    np.testing.assert_array_equal([got], dense(model.transform([row])))


def test_a_row_that_has_the_column_is_a_row_and_not_the_map() -> None:
    model = FeatureHasher(5)
    with sqlml.connect() as db:
        db.execute("CREATE TABLE t AS SELECT 7 AS id, MAP {'a': 2} AS items")
        db.create_model("h", model)
        want = dense(model.transform([{"a": 2}]))
        for arguments in ("t", "*", "{'items': t.items}", "{'items': {'a': 2}}", "items"):
            np.testing.assert_array_equal(transformed(db, "h", arguments), want)
        want = dense(model.transform([{"items": 2}]))
        np.testing.assert_array_equal(transformed(db, "h", "{'items': 2}"), want)


@pytest.mark.parametrize(
    ("value", "row"),
    [
        ("[{'name': 'a', 'n': 2}, {'name': 'a', 'n': 3}]", [("a", 2), ("a", 3)]),
        ("[{'k': 'a', 'v': 'x'}]", [("a", "x")]),
        ("[row('a', 0.5::FLOAT), row('b', 2)]", [("a", 0.5), ("b", 2)]),
        ("map_entries(MAP {'a': 1, 'b': 2})", [("a", 1), ("b", 2)]),
        ("[]", []),
    ],
)
def test_a_list_of_structs_of_two_is_pairs(value: str, row: list[Any]) -> None:
    model = FeatureHasher(5, input_type="pair")
    with sqlml.connect() as db:
        db.create_model("h", model)
        (got,) = db.execute(f"SELECT transform('h', {value})").fetchone()
    np.testing.assert_array_equal([got], dense(model.transform([row])))


def basket(rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"id": np.arange(rows), "price": rng.normal(3, 1, rows)})
    return frame.assign(tags=tags(rows, seed), counts=weights(rows, seed))


def test_lists_maps_and_numbers_in_one_call(tmp_path: Any) -> None:
    train, fresh = basket(300, 0), basket(CHUNK + 5, 1)
    parts = ColumnTransformer(
        [
            ("t", FeatureHasher(64, input_type="string"), "tags"),
            ("c", make_pipeline(FeatureHasher(64)), "counts"),
            ("p", StandardScaler(), ["price"]),
        ]
    )
    kept = train.assign(counts=[{k: min(v, 9) for k, v in row.items()} for row in train["counts"]])
    model = make_pipeline(parts, LogisticRegression())
    model.fit(kept, ["good" in row for row in train["tags"]])
    counts = pa.array(
        [list(row.items()) for row in fresh["counts"]], pa.map_(pa.string(), pa.float64())
    )
    table = pa.table({"id": fresh.id, "price": fresh.price, "tags": fresh.tags, "counts": counts})
    want = model.predict(fresh)
    path = str(tmp_path / "shop.duckdb")
    with sqlml.connect(path) as db:
        create(db, table)
        db.create_model("m", model)
        db.execute("CREATE VIEW scored AS SELECT id, predict('m', *) AS y FROM t")
        rows = db.execute("SELECT predict('m', *) FROM t ORDER BY id").fetchall()
        assert [row[0] for row in rows] == want.tolist()
        plan = db.execute("EXPLAIN SELECT predict('m', *) FROM t").fetchall()[0][1]
        assert "tags VARCHAR[]" in plan and "MAP(VARCHAR," in plan
        db.execute(f"EXPORT MODEL m TO '{tmp_path}/m.sqlml'")
        db.execute(f"CREATE MODEL again FROM '{tmp_path}/m.sqlml'")
        rows = db.execute("SELECT predict('again', *) FROM t ORDER BY id").fetchall()
        assert [row[0] for row in rows] == want.tolist()
        with pytest.raises(errors.BackendError, match="ONNX.*FORMAT SQLML"):
            db.execute(f"EXPORT MODEL m TO '{tmp_path}/m.onnx' FORMAT ONNX")
    with sqlml.connect(path) as db:
        rows = db.execute("SELECT y FROM scored ORDER BY id").fetchall()
    assert [row[0] for row in rows] == want.tolist()


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("model", "value", "fix"),
    [
        ("m", "'a'", r"labels\" := \[\('a'\)\]"),
        ("m", "MAP {'a': 1}", r"map_keys\("),
        ("m", "[['a']]", r"CAST\(.* AS VARCHAR\[\]\)"),
        ("m", "[DATE '2020-01-01']", r"CAST\(.* AS VARCHAR\[\]\)"),
        ("m", "labels := {'a': 1}", r"takes lists"),
        ("h", "'{}'", r"AS JSON\)"),
        ("h", "3", r"{'x': 3}"),
        ("h", "MAP {1: 2}", r"AS MAP\(VARCHAR, INTEGER\)"),
        ("h", "MAP {'a': [1]}", r"AS MAP\(VARCHAR, VARCHAR\)"),
        ("h", "[{'a': 'x', 'b': 1}]", r"map_from_entries\("),
        ("h", "{'a': DATE '2020-01-01'}", r"takes a MAP"),
        ("p", "MAP {'a': 1}", r"map_entries\("),
        ("p", "[{'a': 1, 'b': 1}]", r"takes lists of pairs"),
        ("p", "['a']", r"'name': "),
    ],
)
def test_a_column_of_another_type_is_an_error_that_names_a_fix(
    model: str, value: str, fix: str
) -> None:
    with sqlml.connect() as db:
        db.create_model("m", MultiLabelBinarizer().fit([["a"]]))
        db.create_model("h", FeatureHasher(4))
        db.create_model("p", FeatureHasher(4, input_type="pair"))
        with pytest.raises(errors.ColumnTypeError, match=fix):
            db.execute(f"SELECT transform('{model}', {value})")


@pytest.mark.by_day(2)
@pytest.mark.parametrize(
    ("model", "value", "error", "message"),
    [
        ("m", "NULL", errors.MissingValueError, r"'labels' has NULL.*coalesce\(..., \[\]\)"),
        ("m", "NULL::VARCHAR[]", errors.MissingValueError, "'labels' has NULL"),
        ("m", "'null'::JSON", errors.MissingValueError, "a JSON null"),
        ("m", "'{}'::JSON", errors.InputTypeError, "an object .* takes a list"),
        ("m", "'[[]]'::JSON", errors.InputTypeError, "a list in a row"),
        ("h", "NULL", errors.MissingValueError, "MAP {}"),
        ("h", "MAP {'a': NULL}", errors.MissingValueError, "NULL as the value of 'a'"),
        ("h", "{'a': 1, 'b': NULL}", errors.MissingValueError, "NULL as the value of 'b'"),
        ("h", "'[]'::JSON", errors.InputTypeError, "a list .* takes a mapping"),
        ("h", "'{\"a\": {}}'::JSON", errors.InputTypeError, "an object"),
        (
            "h",
            "(repeat('[', 90000) || repeat(']', 90000))::JSON",
            errors.InputTypeError,
            "nested too deeply",
        ),
        ("p", "[NULL, {'a': 'x', 'b': 1}]", errors.MissingValueError, "among its pairs"),
        ("p", "[{'a': NULL::VARCHAR, 'b': 1}]", errors.MissingValueError, "a name is expected"),
        ("s", "['a', NULL]", errors.MissingValueError, "a name is expected"),
        ("s", "[1, 2]", errors.InputTypeError, "takes a string"),
    ],
)
def test_a_row_that_the_source_refuses_is_an_error(
    model: str, value: str, error: type[Exception], message: str
) -> None:
    with sqlml.connect() as db:
        db.create_model("m", MultiLabelBinarizer().fit([["a"]]))
        db.create_model("h", FeatureHasher(4))
        db.create_model("p", FeatureHasher(4, input_type="pair"))
        db.create_model("s", FeatureHasher(4, input_type="string"))
        with pytest.raises(error, match=message):
            db.execute(f"SELECT transform('{model}', {value})").fetchall()


def test_a_name_of_ones_own_and_a_declared_type() -> None:
    with sqlml.connect() as db:
        db.create_model("m", MultiLabelBinarizer().fit([["a", "b"]]), inputs={"t": "VARCHAR[]"})
        db.create_model("h", FeatureHasher(4, input_type="string"), inputs=["words"])
        assert db.execute("SELECT transform('m', t := ['b'])").fetchone() == ([0.0, 1.0],)
        want = dense(FeatureHasher(4, input_type="string").transform([["b", "a"]]))
        got = db.execute("SELECT transform('h', words) FROM (SELECT ['b', 'a'] AS words)")
        assert got.fetchone() == (want[0].tolist(),)
        with pytest.raises(errors.ConfigError, match=r"declared MAP.*reads it as a list"):
            db.create_model("x", MultiLabelBinarizer().fit([["a"]]), inputs={"t": "MAP(A, B)"})
        with pytest.raises(errors.ConfigError, match="DATE"):
            db.create_model("x", MultiLabelBinarizer().fit([["a"]]), inputs={"t": "DATE"})
