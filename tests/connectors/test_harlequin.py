"""Models in harlequin: its app runs headless on a database with a model."""

from __future__ import annotations

import asyncio
import pickle
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from sklearn.linear_model import LogisticRegression

import sqlml

harlequin = pytest.importorskip("harlequin")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        con.execute(
            "CREATE TABLE customers AS SELECT i % 7 AS visits, i % 3 AS age FROM range(9) r(i)"
        )
        model = LogisticRegression().fit([[0.0, 1], [1, 2], [2, 0]], ["no", "yes", "no"])
        con.create_model("churn", model, inputs={"visits": "DOUBLE", "age": "DOUBLE"})
    return path


def adapter(*databases: Path, **options: Any) -> Any:
    (found,) = entry_points(group="harlequin.adapter", name="sqlml")
    return found.load()([str(path) for path in databases], no_init=True, **options)


def test_the_catalog(shop: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    with sqlml.connect(other) as con:
        con.create_model("vip", LogisticRegression().fit([[0.0], [1]], [0, 1]), inputs=["age"])
    connection = adapter(shop, other).connect()
    shown = {}
    for database in connection.get_catalog().items:
        for item in database.fetch_children():
            shown[database.label, item.label] = item
    churn, vip = (shown[name, "models"].children[0] for name in ("shop", "other"))
    assert (churn.label, churn.type_label, churn.query_name) == ("churn", "m", "'churn'")
    assert (vip.query_name, vip.qualified_identifier) == ("'other.vip'", '"other"."vip"')
    features = [(f.label, f.type_label, f.type_name) for f in churn.fetch_children()]
    assert features == [("visits", "#.#", "DOUBLE"), ("age", "#.#", "DOUBLE")]
    assert [item.label for item in shown["shop", "main"].fetch_children()] == ["customers"]
    found = connection.search_catalog("chu")
    assert [(f.item.label, f.parents) for f in found if f.item.type_label == "m"] == [
        ("churn", ("shop", "models"))
    ]
    completions = {c.label: c for c in connection.get_completions()}
    assert completions["vip"].value == "'other.vip'"
    assert {"predict_proba", "ml_evaluate"} <= set(completions)


def test_labels_and_errors_send_no_control_characters(tmp_path: Path) -> None:
    hostile = "m\x1b]0;taken\x07\x9b2J"
    path = tmp_path / "shop.duckdb"
    with sqlml.connect(path) as con:
        model = LogisticRegression().fit([[0.0], [1]], [0, 1])
        con.create_model(hostile, model, inputs=[hostile])
    connection = adapter(path).connect()
    (item,) = connection.models("shop")
    assert item.label == r"m\u001b]0;taken\u0007\u009b2J" and hostile in item.query_name
    assert [column.label for column in item.fetch_children()] == [item.label]
    with pytest.raises(harlequin.exception.HarlequinQueryError) as caught:
        connection.execute(f"SELECT predict('{hostile}', 1, 2)")
    assert "\x1b" not in str(caught.value) and "\x9b" not in str(caught.value)


def test_statements(shop: Path, tmp_path: Path) -> None:
    connection = adapter(shop).connect()
    asked = "SELECT predict('churn', *) AS p, count(*) FROM customers GROUP BY ALL ORDER BY ALL"
    cursor = connection.execute(asked)
    assert cursor.columns() == [("p", "s"), ("count_star()", "##")]
    assert cursor.set_limit(1).fetchall().to_pylist() == [{"p": "no", "count_star()": 7}]
    assert cursor.fetchone() == ("no", 7)
    with pytest.raises(harlequin.exception.HarlequinQueryError, match="did you mean 'churn'"):
        connection.execute("SELECT predict('chrn', *) FROM customers")
    assert connection.execute("DROP MODEL IF EXISTS nobody") is None
    told = connection.execute("DESCRIBE MODEL churn").fetchall().to_pylist()
    assert told[0] == {"property": "name", "value": "churn"}
    pickled = tmp_path / "m.pkl"
    pickled.write_bytes(pickle.dumps(LogisticRegression()))
    with pytest.raises(harlequin.exception.HarlequinQueryError, match="allow_pickle"):
        connection.execute(f"CREATE MODEL m FROM '{pickled}'")
    for text in ("DESCRIBE MODEL churn", asked, "FROM ML.PREDICT(MODEL churn, TABLE customers)"):
        assert connection.validate_sql(text) == text
    for text in ("SELEC 1", "CREATE MODEL", "predict('churn', *)"):
        assert connection.validate_sql(text) == ""


def test_pickles_are_read_only_if_allowed(shop: Path) -> None:
    assert not adapter(shop).allow_pickle
    assert not adapter(shop, allow_pickle="false").allow_pickle
    assert adapter(shop, allow_pickle=True).allow_pickle


def test_the_app(shop: Path) -> None:
    asyncio.run(_driven(harlequin.Harlequin(adapter(shop))))


async def _driven(app: Any) -> None:
    async with app.run_test(size=(120, 40)) as pilot:
        while app.editor is None or app.connection is None:
            await pilot.pause(0.1)
        app.editor.text = "SELECT predict('churn', *) AS p FROM customers ORDER BY p"
        await pilot.press("ctrl+j")
        for _ in range(100):
            await pilot.pause(0.1)
            table = app.results_viewer.get_visible_table()
            if table is not None and table.row_count:
                break
        assert list(table.get_row_at(8)) == ["yes"]
        labels = [str(node.label) for node in app.data_catalog.database_tree.root.children]
        assert any("shop" in label for label in labels)
        await pilot.pause()
