"""Models as extensions: the same results as in the session, in a DuckDB that knows no sqlml."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from skl2onnx import to_onnx
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

import sqlml
from sqlml import errors
from sqlml.backends.native.jit.processor_levels import LIBRARY
from sqlml.backends.native.jit.runtime_library import list_kernel_keys
from sqlml.catalog.catalog_connection import IS_DUCKDB_2
from sqlml.udfs.duckdb.native.extension_file import hash_words
from tests.e2e import child, family_zoo, model_zoo
from tests.e2e.family_zoo import FAMILIES
from tests.support.exported import UNSIGNED, count_differences, describe, export

pytestmark = pytest.mark.version

MODELS = {
    "forest": "ExtraTreesClassifier",
    "boosted": "XGBoost, two targets",
    "linear": "SelectKBest",
    "component": "PCA",
    "odd": "IsolationForest",
    "texts": "text, categories and numbers",
    "near": "KNeighborsClassifier",
    "two": "MultiOutputClassifier",
}
"""Name in SQL -> name in the zoo."""


def make_table(con: sqlml.Session, rows: pd.DataFrame) -> None:
    table = model_zoo.arrow(rows).append_column("note", pa.array(rows.note))
    con.register("zoo_rows", table)
    con.execute("CREATE TABLE t AS SELECT * FROM zoo_rows")
    con.unregister("zoo_rows")


@pytest.fixture(scope="module")
def db() -> Iterator[sqlml.Session]:
    assert list_kernel_keys(LIBRARY.read_bytes()), "the runtime has no kernels: run `make runtime`"
    with sqlml.connect() as con:
        make_table(con, family_zoo.rows(True))
        for name, entry in MODELS.items():
            con.create_model(name, family_zoo.model(entry), verify=False)
        yield con


def test_results_are_those_of_the_session(db: sqlml.Session, tmp_path: Path) -> None:
    exported = export(db, list(MODELS), "t", tmp_path)
    assert {"forest_proba", "linear_score", "component_transform", "two"} < {*exported.functions}
    differences = count_differences(exported)
    if not IS_DUCKDB_2:  # The session's Arrow route takes powers of 2 from numpy.
        del differences["odd_score"]
    assert set(differences.values()) == {0}


REFUSED = ("KNNImputer",)
"""Families of the zoo that need Python, as docs/clients.md says."""


def test_families_that_need_python(tmp_path: Path) -> None:
    for name in REFUSED:
        with pytest.raises(errors.BackendError, match="an extension cannot run this model"):
            write(tmp_path, family_zoo.model(name))


@pytest.mark.nightly
@pytest.mark.skipif(not IS_DUCKDB_2, reason="numpy adds on the Arrow route")
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in REFUSED])
def test_each_family(name: str, tmp_path: Path) -> None:
    with sqlml.connect() as con:
        rows = pd.concat([family_zoo.rows(FAMILIES[name].unseen)] * 65, ignore_index=True)
        make_table(con, rows.head(10_000))
        con.create_model("m", family_zoo.model(name), verify=False)
        exported = export(con, ["m"], "t", tmp_path)
    assert exported.functions
    assert count_differences(exported) == dict.fromkeys(exported.functions, 0)


@pytest.fixture(scope="module")
def shop() -> tuple[Any, pd.DataFrame]:
    """A model of strings and numbers that refuses unknown strings and NULL, and its columns."""
    r = np.random.default_rng(0)
    columns = pd.DataFrame(
        {
            "age": r.normal(40, 9, 500),
            "city": r.choice(["Bonn", "Köln", "a long name of a city"], 500),
        }
    )
    label = np.where(columns.age + 10 * (columns.city == "Bonn") > 42, "stays", "leaves")
    encoder = make_column_transformer((OrdinalEncoder(), ["city"]), remainder="passthrough")
    model = make_pipeline(encoder, RandomForestClassifier(8, max_depth=4, random_state=0))
    return model.fit(columns, label), columns


def write(tmp_path: Path, model: Any, name: str = "m", **options: Any) -> Path:
    """Export a model under `name`, with options."""
    path = tmp_path / "shipped.duckdb_extension"
    with sqlml.connect() as con:
        con.create_model(name, model, verify=False)
        for option, value in options.items():
            con.execute(f"ALTER MODEL \"{name}\" SET OPTIONS ({option} = '{value}')")
        con.export_model(name, path)
    return path


def load(path: Path) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config=UNSIGNED)
    con.execute(f"LOAD '{path}'")
    return con


def fetch(con: duckdb.DuckDBPyConnection, sql: str) -> Any:
    ((value,),) = con.execute(sql).fetchall()
    return value


def test_errors_are_those_of_the_session(tmp_path: Path, shop: tuple[Any, pd.DataFrame]) -> None:
    path = write(tmp_path, shop[0])
    with sqlml.connect() as session, load(path) as con:
        session.create_model("m", shop[0], verify=False)
        for age, city in ((40, "'Paris'"), (40, "NULL"), ("1e300", "'Bonn'")):
            with pytest.raises(errors.ScoringError) as expected:
                session.execute(
                    f"SELECT predict('m', {{age: {age}::DOUBLE, city: {city}::VARCHAR}})"
                ).fetchall()
            with pytest.raises(duckdb.Error) as refused:
                con.execute(f"SELECT m({age}, {city})")
            assert str(expected.value) in str(refused.value)
        with pytest.raises(duckdb.Error, match="argument 'age' takes numbers; cast it"):
            con.execute("SELECT m('forty', 'Bonn')")
        with pytest.raises(duckdb.Error, match="No function matches"):
            con.execute("SELECT m(40)")


def test_options(tmp_path: Path, shop: tuple[Any, pd.DataFrame]) -> None:
    options: Any = {"on_null": "null", "on_unknown": "null", "positive_class": "stays"}
    values = "(30.0, 'Bonn'), (NULL, 'Bonn'), (50, NULL), (50, 'Paris'), (60, 'Köln')"
    rows = f"(VALUES {values}) v(age, city)"
    with sqlml.connect() as session:
        session.create_model("m", shop[0], verify=False, **options)
        expected = session.execute(
            f"SELECT predict('m', v), predict_proba('m', v) FROM {rows}"
        ).fetchall()
    assert expected[2] == expected[3] == (None, None) and expected[4][1] > 0
    with load(write(tmp_path, shop[0], **options)) as con:
        assert (
            con.execute(f"SELECT m(age, city), m_proba(age, city) FROM {rows}").fetchall()
            == expected
        )


def test_unknown_numbers(tmp_path: Path) -> None:
    x = pd.DataFrame({"size": [1.0, 2.0, 2.5, 4.0] * 5, "n": np.arange(20.0)})
    encoder = make_column_transformer((OrdinalEncoder(), ["size"]), remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression()).fit(x, x.n > 7)
    with sqlml.connect() as session, load(write(tmp_path, model)) as con:
        session.create_model("m", model, verify=False)
        for size in ("3", "0.1", "NULL", "'NaN'"):
            with pytest.raises(errors.ScoringError) as expected:
                session.execute(f"SELECT predict('m', {{size: {size}::DOUBLE, n: 1.0}})").fetchall()
            with pytest.raises(duckdb.Error) as refused:
                con.execute(f"SELECT m({size}::DOUBLE, 1)")
            assert str(expected.value) in str(refused.value)
        assert (
            fetch(con, "SELECT m(2.5, 3)")
            == model.predict(pd.DataFrame({"size": [2.5], "n": [3.0]}))[0]
        )


@pytest.mark.parametrize("unknown", ["ignore", "error"])
def test_dates_as_categories(tmp_path: Path, unknown: str) -> None:
    days = pd.date_range("1969-12-30", periods=6).repeat(5)
    x = pd.DataFrame({"day": days, "n": np.arange(30.0)})
    encoder = make_column_transformer(
        (OneHotEncoder(handle_unknown=unknown), ["day"]), remainder="passthrough"
    )
    model = make_pipeline(encoder, LogisticRegression()).fit(x, x.n % 7 > 2)
    dates = (
        "DATE '1970-01-01'",
        "TIMESTAMP '1969-12-31'",
        "DATE '2020-02-02'",
        "NULL",
        "DATE 'infinity'",
    )
    with sqlml.connect() as session, load(write(tmp_path, model)) as con:
        session.create_model("m", model)
        for date in dates:
            query = f"SELECT predict_proba('m', {{day: {date}::TIMESTAMP, n: 1.0}})"
            call = f"SELECT m_proba({date}::TIMESTAMP, 1)"
            try:
                expected = session.execute(query).fetchall()
            except errors.ScoringError as error:
                with pytest.raises(duckdb.Error) as refused:
                    con.execute(call)
                # C does not print dates.
                says = str(error).replace("has 2020-02-02, which", "has a date that")
                assert says in str(refused.value)
            else:
                assert con.execute(call).fetchall() == expected


def test_arguments_of_every_type(tmp_path: Path) -> None:
    r = np.random.default_rng(1)
    x = r.normal(size=(300, 3))
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, x[:, 0] > x[:, 1])
    path = write(tmp_path, model)
    with load(path) as con:
        plain = fetch(con, "SELECT m_proba(1.0::DOUBLE, 2.0::DOUBLE, 0.0::DOUBLE)")
        for types in ("DECIMAL(18, 3)", "DECIMAL(30, 3)", "HUGEINT", "TINYINT", "UBIGINT", "FLOAT"):
            sql = f"SELECT m_proba(1::{types}, 2::{types}, false)"
            assert fetch(con, sql) == plain, types
        assert fetch(con, "SELECT m(1, 2, false) = m(1, 2, 0)") is True
        assert fetch(con, "SELECT typeof(m(1, 2, 3))") == "BOOLEAN"
        con.execute("CREATE TABLE t AS SELECT i::DOUBLE AS a FROM range(5000) r(i)")
        con.execute("CREATE VIEW v AS SELECT m(a, 1, 2) AS p, count(*) AS n FROM t GROUP BY p")
        assert fetch(con, "SELECT sum(n) FROM v") == 5000
        con.execute("PREPARE q AS SELECT m(?, 1, 2)")
        assert fetch(con, "EXECUTE q(3)") == fetch(con, "SELECT m(3, 1, 2)")


def test_names_that_sql_must_quote(tmp_path: Path) -> None:
    x = pd.DataFrame({"a b": [0.0, 1, 2, 3], 'the "x"': [1.0, 0, 1, 0], "Select": [0.0, 0, 1, 1]})
    model = LogisticRegression().fit(x, ["no", "no", "it's", "it's"])
    path = write(tmp_path, model, "order by")
    info = describe(path, "order by")
    assert [k for k in info if k.startswith("feature")] == [f"feature {c}" for c in x.columns]
    assert info["feature a b"] == "DOUBLE" and info["model"] == "order by"
    with load(path) as con:
        con.execute(info["macro order by_row"])
        con.register("x", x)
        labels = con.execute(
            'SELECT "order by_row"(t), "order by"(t."a b", 1, 0) FROM x t'
        ).fetchall()
    assert [label for label, _ in labels] == model.predict(x).tolist()


def test_a_scorer_writes_an_extension(tmp_path: Path, shop: tuple[Any, pd.DataFrame]) -> None:
    model, columns = shop
    path = tmp_path / "churn.duckdb_extension"
    sqlml.compile(model).to_extension(path)
    with load(path) as con:
        con.register("x", columns)
        labels = con.execute("SELECT churn(age, city) FROM x").fetchall()
    assert [label for (label,) in labels] == model.predict(columns).tolist()


def test_what_cannot_be_exported(tmp_path: Path, db: sqlml.Session) -> None:
    for path, message in (
        ("m.extension", "the name must consist of lowercase"),
        ("m.ext", "cannot tell the format"),
        ("My model.duckdb_extension", "lowercase"),
    ):
        with pytest.raises(errors.ConfigError, match=message):
            db.export_model("forest", tmp_path / path)
    target = tmp_path / "m.duckdb_extension"
    for options, message in (
        ("(PLATFORM 'commodore_64')", "unknown platform 'commodore_64'"),
        ("(FORMAT ONNX, PLATFORM 'linux_arm64')", "PLATFORM goes with FORMAT EXTENSION"),
        ("(FORMAT SQL)", "only with FORMAT EXTENSION"),
    ):
        name = "MODEL forest" if "ONNX" in options or "commodore" in options else "MODELS (forest)"
        with pytest.raises(errors.SqlmlError, match=message.replace("(", r"\(")):
            db.execute(f"EXPORT {name} TO '{target}' {options}")
    with pytest.raises(errors.ConfigError, match="two functions would have the name forest"):
        db.execute(f"EXPORT MODELS (forest, forest) TO '{target}'")
    assert not target.exists()


def test_damaged_files_are_refused(tmp_path: Path, shop: tuple[Any, pd.DataFrame]) -> None:
    path = write(tmp_path, shop[0])
    content = path.read_bytes()
    size = int.from_bytes(content[-520:-512], "little")
    for position in (-600, -528 - size // 2, -528 - size + 20):
        damaged = bytearray(content)
        damaged[position] ^= 1
        copy = tmp_path / f"copy{-position}" / path.name
        copy.parent.mkdir()
        copy.write_bytes(damaged)
        with duckdb.connect(config=UNSIGNED) as con:
            for _ in range(2):
                with pytest.raises(duckdb.Error, match="damaged: export the model again"):
                    con.execute(f"LOAD '{copy}'")
            con.execute(f"LOAD '{path}'")
            assert fetch(con, "SELECT m(40, 'Bonn') IS NOT NULL")
    renamed = tmp_path / "other.duckdb_extension"
    shutil.copy(path, renamed)
    with duckdb.connect(config=UNSIGNED) as con, pytest.raises(duckdb.Error, match="other_init"):
        con.execute(f"LOAD '{renamed}'")


def test_foreign_headers_are_refused(tmp_path: Path, shop: tuple[Any, pd.DataFrame]) -> None:
    content = write(tmp_path, shop[0]).read_bytes()
    size = int.from_bytes(content[-520:-512], "little")
    begin = len(content) - 528 - size
    damaged, other = "damaged: export the model again", "another version of sqlml"
    sizes = (0, -1, 8, size - 64, size + 1, size + 64, 1 << 40, (1 << 63) - 1, -(1 << 63))
    cases = [
        *((len(content) - 520, struct.pack("<q", n), f"{damaged}|{other}") for n in sizes),
        (begin, b"sqlml 3\n", other),
        (begin + 16, struct.pack("<q", size + 64), damaged),
        # Another key stands for a kernel that this library lacks.
        (begin + struct.unpack_from("<q", content, begin + 72)[0], b"?" * 16, other),
    ]
    for number, (position, changed, message) in enumerate(cases):
        forged = bytearray(content)
        forged[position : position + len(changed)] = changed
        body = bytes(forged[begin + 16 : begin + size])
        forged[begin + 8 : begin + 16] = struct.pack("<Q", hash_words(body))
        copy = tmp_path / f"copy{number}" / "shipped.duckdb_extension"
        copy.parent.mkdir()
        copy.write_bytes(forged)
        with duckdb.connect(config=UNSIGNED) as con, pytest.raises(duckdb.Error, match=message):
            con.execute(f"LOAD '{copy}'")


def test_loading_twice_in_several_databases(tmp_path: Path, shop: tuple[Any, pd.DataFrame]) -> None:
    path, database = write(tmp_path, shop[0]), tmp_path / "shop.duckdb"
    with duckdb.connect(database, config=UNSIGNED) as con:
        for _ in range(2):
            con.execute(f"LOAD '{path}'")
        con.execute("CREATE VIEW v AS SELECT m(40, 'Bonn') AS label")
        with load(path) as other:
            assert fetch(con, "FROM v") == fetch(other, "SELECT m(40, 'Bonn')")
        assert fetch(con, "FROM v") is not None
    # The extension does not keep the file open.
    script = f"import duckdb; print(duckdb.connect({str(database)!r}).sql('SELECT 1').fetchall())"
    done = child.run(script, tmp_path)
    assert done.stdout == "[(1,)]\n", done.stderr


def test_functions_that_exist_are_not_replaced(
    tmp_path: Path, shop: tuple[Any, pd.DataFrame]
) -> None:
    path = write(tmp_path, shop[0])
    other = tmp_path / "second.duckdb_extension"
    sqlml.compile(shop[0]).to_extension(other, name="m")
    with load(path) as con:
        try:
            con.execute(f"LOAD '{other}'")
        except duckdb.Error as error:
            assert "refuses a function of the model" in str(error)
        assert fetch(con, "SELECT m(40, 'Bonn') IS NOT NULL")


def test_many_threads(tmp_path: Path, shop: tuple[Any, pd.DataFrame]) -> None:
    model, columns = shop
    with load(write(tmp_path, model)) as con:
        con.register("columns", columns)
        con.execute("CREATE TABLE t AS SELECT age, city FROM columns, range(400)")
        con.execute("SET threads = 8")
        labels = dict(con.execute("SELECT m(age, city), count(*) FROM t GROUP BY ALL").fetchall())
    expected = pd.Series(model.predict(columns)).value_counts() * 400
    assert labels == expected.to_dict()


def test_a_file_that_is_exported_again_is_not_mistaken_for_the_old_one(
    tmp_path: Path, shop: tuple[Any, pd.DataFrame]
) -> None:
    """The system's loader returns the library that it has loaded from a path before."""
    path = write(tmp_path, shop[0])
    with load(path) as con:
        write(tmp_path, LogisticRegression().fit([[0.0], [1.0]], [7, 8]))
        with pytest.raises(duckdb.Error, match="has changed since this process loaded it"):
            load(path)
        assert fetch(con, "SELECT m(40, 'Bonn') IS NOT NULL")


def test_a_linear_model_of_onnx_and_one_of_many_classes(tmp_path: Path) -> None:
    r = np.random.default_rng(0)
    x = r.normal(size=(600, 3)).astype(np.float32)
    linear = LogisticRegression().fit(x, x[:, 0] > x[:, 1])
    (tmp_path / "linear.onnx").write_bytes(
        to_onnx(linear, x[:1], options={"zipmap": False}).SerializeToString()
    )
    forest = RandomForestClassifier(3, max_depth=5, random_state=0).fit(x, r.integers(0, 300, 600))
    with sqlml.connect() as con:
        con.register("rows", pd.DataFrame(x, columns=["X_0", "X_1", "X_2"]))
        con.execute("CREATE TABLE t AS FROM rows")
        con.execute(f"CREATE MODEL linear FROM '{tmp_path / 'linear.onnx'}'")
        names = ["X_0", "X_1", "X_2"]
        con.create_model("forest", forest, inputs=names, verify=False)
        exported = export(con, ["linear", "forest"], "t", tmp_path)
    assert {"linear", "linear_proba", "forest", "forest_proba"} <= {*exported.functions}
    assert set(count_differences(exported).values()) == {0}
