"""MultiLabelBinarizer and FeatureHasher: what a Scorer takes for their rows, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction import FeatureHasher
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer, OneHotEncoder

import sqlml
from sqlml.errors import InputTypeError, MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from sqlml.types import Array

pytestmark = pytest.mark.filterwarnings("ignore:unknown class")

LISTS = [["dog", "cat"], [], ["Straße", "dog", "dog"], ["new"]]
MAPS: list[dict[str, Any]] = [{"dog": 1.5, "cat": -2.0}, {}, {"a": 1e300}]
PAIRS = [[("dog", 1.5), ("dog", 2.0)], [], [("cat", 0.0)]]


def cells(rows: list[Any]) -> Array:
    made = np.empty(len(rows), object)
    made[:] = rows
    return made


def same(model: Any, held: Any, rows: Any) -> None:
    want = model.transform(rows)
    want = want.toarray() if hasattr(want, "toarray") else want
    np.testing.assert_array_equal(sqlml.compile(model).transform(held), want)


LIST_HOLDERS: dict[str, Callable[[str, list[Any]], Any]] = {
    "list": lambda n, rows: rows,
    "tuple of tuples": lambda n, rows: tuple(tuple(row) for row in rows),
    "sets": lambda n, rows: [set(row) for row in rows],
    "dicts, of which the keys count": lambda n, rows: [dict.fromkeys(row, 1) for row in rows],
    "generators": lambda n, rows: [(x for x in row) for row in rows],
    "array of lists": lambda n, rows: cells(rows),
    "array of arrays": lambda n, rows: cells([np.array(row, object) for row in rows]),
    "one column": lambda n, rows: cells(rows).reshape(-1, 1),
    "Series": lambda n, rows: pd.Series(rows),
    "frame": lambda n, rows: pd.DataFrame({"other": 1, n: rows}),
    "frame, upper case": lambda n, rows: pd.DataFrame({n.upper(): rows}),
    "frame of Arrow": lambda n, rows: pd.DataFrame(
        {n: pd.Series(rows, dtype=pd.ArrowDtype(pa.list_(pa.string())))}
    ),
    "mapping": lambda n, rows: {n: rows},
    "polars": lambda n, rows: pl.DataFrame({n: rows}),
    "polars Series": lambda n, rows: pl.Series(n, rows),
    "polars Categorical": lambda n, rows: pl.DataFrame(
        {n: pl.Series(rows, dtype=pl.List(pl.Categorical))}
    ),
    "Arrow": lambda n, rows: pa.table({n: rows}),
    "Arrow in pieces": lambda n, rows: pa.table(
        {n: pa.chunked_array([rows[:1], rows[1:]], pa.list_(pa.string()))}
    ),
    "Arrow array": lambda n, rows: pa.array(rows, pa.large_list(pa.large_string())),
}


@pytest.mark.parametrize("holder", list(LIST_HOLDERS))
def test_lists_in_every_holder(holder: str) -> None:
    binarizer = MultiLabelBinarizer().fit(LISTS[:3])
    same(binarizer, LIST_HOLDERS[holder]("labels", LISTS), LISTS)
    if "dicts" not in holder and "sets" not in holder:
        hasher = FeatureHasher(9, input_type="string")
        same(hasher, LIST_HOLDERS[holder]("items", LISTS), LISTS)


ENTRIES = pa.map_(pa.string(), pa.float64())
STRUCT = pa.struct([("a", pa.string()), ("b", pa.float64())])
MAP_HOLDERS: dict[str, Callable[[], Any]] = {
    "list": lambda: MAPS,
    "array": lambda: cells(MAPS),
    "Series": lambda: pd.Series(MAPS),
    "frame": lambda: pd.DataFrame({"items": MAPS}),
    "mapping": lambda: {"items": MAPS},
    "Arrow": lambda: pa.table({"items": pa.array([list(m.items()) for m in MAPS], ENTRIES)}),
    "polars objects": lambda: pl.DataFrame({"items": pl.Series(MAPS, dtype=pl.Object)}),
}


@pytest.mark.parametrize("holder", list(MAP_HOLDERS))
def test_maps_in_every_holder(holder: str) -> None:
    same(FeatureHasher(9), MAP_HOLDERS[holder](), MAPS)


def test_a_struct_is_a_map_of_its_fields() -> None:
    rows = [{"a": "x", "b": 2.5}, {"a": "y", "b": 0.0}]
    same(FeatureHasher(9), pa.table({"items": pa.array(rows, STRUCT)}), rows)
    same(FeatureHasher(9), pl.DataFrame({"items": rows}), rows)
    gone = pa.table({"items": pa.array([{"a": "x", "b": None}], STRUCT)})
    with pytest.raises(MissingValueError, match="NULL as the value of 'b'"):
        sqlml.compile(FeatureHasher(9)).transform(gone)


def test_pairs_in_every_holder() -> None:
    structs = [[{"k": k, "v": v} for k, v in row] for row in PAIRS]
    hasher = FeatureHasher(9, input_type="pair")
    for held in (
        PAIRS,
        [tuple(map(list, row)) for row in PAIRS],
        pd.DataFrame({"items": PAIRS}),
        pl.DataFrame({"items": structs}),
        pa.table({"items": structs}),
    ):
        same(hasher, held, PAIRS)


def test_a_matrix_is_rows_of_labels() -> None:
    codes = np.array([[1, 2], [2, 2], [3, 9]])
    same(MultiLabelBinarizer().fit(codes), codes, codes)
    words = np.array([["a", "b"], ["b", "q"]], object)
    same(MultiLabelBinarizer().fit(words), words, words)
    same(FeatureHasher(5, input_type="string"), words, words)
    one = np.array([["ab"], ["b"]], object)
    same(FeatureHasher(5, input_type="string"), one, one)


def test_numbers_are_equal_as_in_python() -> None:
    model = MultiLabelBinarizer(classes=[1, 0, 2.5, 2**53 + 1, "1", None]).fit([])
    rows: list[list[Any]] = [
        [True, np.float32(2.5), "1"],
        [1.0, np.int8(0), float(2**53)],
        [2**53 + 1, np.uint64(2**53 + 1), None],
        [np.nan, np.inf, 1e400, "", np.str_("1")],
        [Decimal("2.5"), np.bool_(False)],
    ]
    same(model, rows, rows)


def test_zero_rows() -> None:
    model = sqlml.compile(MultiLabelBinarizer().fit([["a"]]))
    assert model.transform([]).shape == (0, 1)
    assert sqlml.compile(FeatureHasher(4)).transform([]).shape == (0, 4)


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (["dog"], InputTypeError, "the str 'dog', but the model takes a list"),
        ([b"dog"], InputTypeError, "the bytes"),
        ([3], InputTypeError, "the int 3"),
        ([[["a"]]], InputTypeError, r"the list \['a'\], but the model takes"),
        ([[b"a"]], InputTypeError, "the bytes"),
        ([[("a", 1)]], InputTypeError, "the tuple"),
        ([[np.datetime64("2020-01-01")]], InputTypeError, "the date"),
        ([["a"], None], MissingValueError, "'labels' has NULL"),
        ([["a"], np.nan], MissingValueError, "'labels' has NULL"),
        (pd.Series([["a"], pd.NA]), MissingValueError, "'labels' has NULL"),
        (pa.array([["a"], None]), MissingValueError, "'labels' has NULL"),
        (np.zeros(3), InputTypeError, "the float64 0.0|the float 0.0|float64"),
        (pd.DataFrame({"labels": ["a", "b"]}), InputTypeError, "the str 'a'"),
        (pa.table({"labels": [{"a": 1}]}), InputTypeError, "the dict"),
    ],
)
def test_what_is_no_list_is_an_error(rows: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sqlml.compile(MultiLabelBinarizer().fit([["a"]])).transform(rows)


def test_what_is_no_map_and_no_pair_is_an_error() -> None:
    maps, pairs = (
        sqlml.compile(FeatureHasher(4)),
        sqlml.compile(FeatureHasher(4, input_type="pair")),
    )
    with pytest.raises(InputTypeError, match="the list .* takes a dict"):
        maps.transform([[("a", 1)]])
    with pytest.raises(InputTypeError, match="the int 1 as a name"):
        maps.transform([{1: 2}])
    with pytest.raises(MissingValueError, match="NULL as the value of 'a'"):
        maps.transform([{"a": None}])
    with pytest.raises(InputTypeError, match="a list|the list"):
        maps.transform([{"a": [1]}])
    with pytest.raises(InputTypeError, match="too large for a float"):
        maps.transform([{"a": 10**400}])
    with pytest.raises(InputTypeError, match="lone surrogate"):
        maps.transform([{"\ud800": 1}])
    for row in ({"ab": 1}, ["ab"], [("a", 1, 2)], [{"a": 1, "b": 2}], [None]):
        with pytest.raises(InputTypeError, match="list of pairs"):
            pairs.transform([row])


def test_several_columns_of_a_matrix_are_rows_of_strings() -> None:
    x = np.array([["a", "b", 1], ["b", "b", 2], ["", "日本", 3]], object)
    encoded = ("n", OneHotEncoder(), [2])
    hasher = FeatureHasher(8, input_type="string")
    for chosen in ([0, 1], slice(0, 2), [1]):
        model = ColumnTransformer([("h", hasher, chosen), encoded]).fit(x)
        scorer = sqlml.compile(model)
        kinds = {f.name: f.kind for f in scorer.features}
        assert kinds["x1"] == "string"
        np.testing.assert_array_equal(scorer.transform(x), model.transform(x).toarray())


def test_one_column_of_a_matrix_or_a_frame_is_rows_of_lists() -> None:
    y = [0, 1, 0, 1]
    frame = pd.DataFrame({"tags": LISTS, "n": [1.0, 2.0, 3.0, 4.0]})
    parts = [("h", make_pipeline(FeatureHasher(8, input_type="string")), "tags")]
    model = make_pipeline(ColumnTransformer(parts), LogisticRegression()).fit(frame, y)
    scorer = sqlml.compile(model)
    assert {f.name: f.kind for f in scorer.features} == {"tags": "list", "n": "any"}
    np.testing.assert_allclose(scorer.predict_proba(frame), model.predict_proba(frame), rtol=1e-12)
    x = frame.to_numpy(object)
    model = ColumnTransformer([("h", FeatureHasher(8, input_type="string"), 0)]).fit(x)
    np.testing.assert_array_equal(sqlml.compile(model).transform(x), model.transform(x).toarray())


def test_names_of_the_columns() -> None:
    imported = import_model(MultiLabelBinarizer().fit(LISTS))
    assert [(f.name, f.kind) for f in imported.features] == [("labels", "list")]
    for kind, form in (("dict", "map"), ("pair", "pairs"), ("string", "list")):
        imported = import_model(FeatureHasher(4, input_type=kind))
        assert [(f.name, f.kind) for f in imported.features] == [("items", form)]
        assert [
            f.name for f in import_model(FeatureHasher(4, input_type=kind), ["t"]).features
        ] == ["t"]
    imported = import_model(FeatureHasher(4, input_type="string"), ["a", "b"])
    assert [(f.name, f.kind) for f in imported.features] == [("a", "string"), ("b", "string")]


def test_what_is_refused_and_why() -> None:
    refused: dict[str, Any] = {
        r"not fitted|fit\(\)": MultiLabelBinarizer(),
        "without any label": MultiLabelBinarizer().fit([[]]),
        r"the label \('a', 1\)": MultiLabelBinarizer().fit([[("a", 1)]]),
        "the label nan": MultiLabelBinarizer(classes=[1.5, np.nan]).fit([]),
        "the label b'a'": MultiLabelBinarizer().fit([[b"a"]]),
        "int64.* rounds the weights": FeatureHasher(dtype=np.int64),
        "int8.* may wrap": FeatureHasher(input_type="string", dtype=np.int8),
        "input_type='lists'": FeatureHasher(input_type="lists"),
    }
    for reason, model in refused.items():
        with pytest.raises(UnsupportedModelError, match=reason):
            import_model(model)
    x = cells([{"a": 1.0}, {"b": 2.0}]).reshape(-1, 1)
    listed = ColumnTransformer([("h", FeatureHasher(4), 0)]).fit(x)
    listed.transformers_ = [("h", FeatureHasher(4), [0])]
    with pytest.raises(UnsupportedModelError, match="'h'.*one column of lists or maps"):
        import_model(listed)
    twice = ColumnTransformer(
        [("h", FeatureHasher(4), "t"), ("s", FeatureHasher(4, input_type="string"), "t")]
    ).fit(pd.DataFrame({"t": [{"a": 1}, {"b": 2}]}))
    with pytest.raises(UnsupportedModelError, match="both as a map and as a list"):
        import_model(twice)
