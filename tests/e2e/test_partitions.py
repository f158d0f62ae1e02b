"""CREATE MODEL ... PARTITION BY: a model for each value of a column, as one model."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest import approx

import sqlml
from sqlml.errors import (
    BackendError,
    BindError,
    ConfigError,
    MissingColumnError,
    ParseError,
    UnknownCategoryError,
)
from sqlml.session.session import Session
from sqlml.training import train_partitions
from tests.support.partitioned_models import CLASSES, FEATURES, NUMBERS, VISITS, fetch, train


@pytest.fixture(scope="module")
def con() -> Iterator[Session]:
    with sqlml.connect() as connection:
        connection.execute(VISITS)
        yield connection


@pytest.mark.parametrize(
    "options",
    [
        f"model_type = 'linear_reg', {NUMBERS}",
        f"model_type = 'linear_reg', {NUMBERS}, l1_reg = 0.1",
        f"model_type = 'boosted_tree_regressor', {NUMBERS}, max_iterations = 5",
        f"model_type = 'boosted_tree_regressor', {NUMBERS}, library = 'lightgbm', num_leaves = 4",
        f"model_type = 'random_forest_regressor', {NUMBERS}, library = 'sklearn', n_estimators = 4",
        f"model_type = 'logistic_reg', {CLASSES}",
        f"model_type = 'boosted_tree_classifier', {CLASSES}, max_iterations = 5",
        "model_type = 'boosted_tree_classifier', label = 'is_large', max_iterations = 5",
    ],
)
def test_each_row_gets_the_prediction_of_its_own_model(con: Session, options: str) -> None:
    train(con, f"{options}, split = 'none'")
    label = next(word for word in ("amount", "size", "is_large") if f"'{word}'" in options)
    is_classifier = label != "amount"
    functions = ["predict", *(["predict_proba"] if is_classifier else [])]
    for index, shop in enumerate(["north", "south", "it''s"]):
        con.execute(
            f"CREATE OR REPLACE MODEL own_{index} OPTIONS ({options}, split = 'none') AS "
            f"SELECT floor, hour, payment, {label} FROM visits WHERE shop = '{shop}'"
        )
        for function in functions:
            pairs = fetch(
                con,
                f"SELECT {function}('m', *), {function}('own_{index}', *) FROM visits "
                f"WHERE shop = '{shop}'",
            )
            assert len(pairs) > 300
            for whole, own in pairs:
                assert whole == (own if isinstance(own, (str, bool)) else approx(own))
        contributions = fetch(
            con,
            f"SELECT explain('m', *), explain('own_{index}', *) FROM visits "
            f"WHERE shop = '{shop}' LIMIT 50",
        )
        for whole, own in contributions:
            assert whole["shop"] == 0
            for name, value in own.items():
                assert math.isclose(whole[name], value, rel_tol=1e-9, abs_tol=1e-12)


def test_many_columns_with_many_values_divide_the_rows(con: Session) -> None:
    columns = [f"k{i}" for i in range(17)]
    keys = ", ".join(f"i % 30 // {k % 2 + 1} % 16 AS {c}" for k, c in enumerate(columns))
    con.execute(
        f"CREATE MODEL wide PARTITION BY ({', '.join(columns)}) OPTIONS (model_type = 'linear_reg',"
        f" label = 'y', split = 'none') AS SELECT {keys}, i AS x, i * (i % 30) AS y "
        "FROM range(300) t(i)"
    )
    (error,) = fetch(
        con,
        f"SELECT max(abs(predict('wide', *) - y)) FROM (SELECT {keys}, i AS x, i * (i % 30) AS y "
        "FROM range(300) t(i))",
    )
    assert error[0] < 1e-6


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 9007199254740992 + i % 2 AS k, i AS x, i AS y FROM range(60) t(i)", "2\\^53"),
        ("SELECT 'a' || chr(0) AS k, i AS x, i AS y FROM range(60) t(i)", "NUL character"),
        ("SELECT i % 2 AS k, i AS y FROM range(60) t(i)", "no column that a model can learn from"),
    ],
)
def test_what_cannot_be_divided_is_refused(con: Session, query: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        con.execute(
            "CREATE MODEL refused PARTITION BY k OPTIONS (model_type = 'linear_reg', label = 'y') "
            f"AS {query}"
        )


def test_several_columns_divide_the_rows(con: Session) -> None:
    options = f"model_type = 'linear_reg', {NUMBERS}, split = 'none'"
    train(con, options, partition_by="(shop, floor)")
    con.execute(
        f"CREATE OR REPLACE MODEL own_0 OPTIONS ({options}) AS "
        "SELECT hour, payment, amount FROM visits WHERE shop = 'south' AND floor = 1"
    )
    (result,) = fetch(
        con,
        "SELECT count(*), max(abs(predict('m', *) - predict('own_0', *))) "
        "FROM visits WHERE shop = 'south' AND floor = 1",
    )
    assert result[0] > 100
    assert result[1] < 1e-9
    assert len(fetch(con, "FROM ml_partitions(MODEL m)")) == 6
    with pytest.raises(UnknownCategoryError, match="no model was trained for"):
        con.execute("SELECT predict('m', * REPLACE (7 AS floor)) FROM visits").fetchall()


@pytest.mark.parametrize(
    "column",
    [
        "floor = 1",
        "floor - 5",
        "(shop || '\u00fc' || repeat('x', 40))",
        "shop::ENUM ('north', 'south', 'it''s')",
        "md5(shop)::UUID",
    ],
)
def test_columns_of_each_type_divide_the_rows(con: Session, column: str) -> None:
    query = f'SELECT {column} AS "my ""key", hour, amount FROM visits'
    train(con, f"model_type = 'linear_reg', {NUMBERS}", query, '"my ""key"')
    (result,) = fetch(con, f"SELECT count(predict('m', *)), count(*) FROM ({query})")
    assert result[0] == result[1] == 1200


def test_rows_of_other_partitions(con: Session) -> None:
    unseen = "SELECT * REPLACE (if(id = 0, 'new', if(id = 1, NULL, shop)) AS shop) FROM visits"
    options = f"model_type = 'linear_reg', {NUMBERS}"
    train(con, options)
    with pytest.raises(UnknownCategoryError) as error:
        con.execute(f"SELECT predict('m', *) FROM ({unseen}) WHERE id = 0").fetchall()
    assert "no model was trained for shop = 'new'; filter such rows, or train" in str(error.value)
    with pytest.raises(UnknownCategoryError, match="shop = NULL"):
        con.execute(f"SELECT predict('m', *) FROM ({unseen}) WHERE id = 1").fetchall()

    train(con, f"{options}, unseen_partition = 'null'")
    predictions = fetch(con, f"SELECT id, predict('m', *) FROM ({unseen}) ORDER BY id")
    assert [p is None for _, p in predictions] == [True, True] + [False] * 1198

    train(con, f"{options}, unseen_partition = 'fallback'")
    con.execute(
        f"CREATE OR REPLACE MODEL own_0 OPTIONS ({options}) AS "
        "SELECT floor, hour, payment, amount FROM visits"
    )
    pairs = fetch(
        con, f"SELECT predict('m', *), predict('own_0', *) FROM ({unseen}) ORDER BY id LIMIT 2"
    )
    # The models hold out other rows, because the hash of a row includes the shop.
    assert all(abs(whole - own) < 0.5 for whole, own in pairs)


def test_classes_of_other_partitions_are_null_too(con: Session) -> None:
    train(con, f"model_type = 'logistic_reg', {CLASSES}, unseen_partition = 'null'")
    row = "(SELECT * REPLACE ('new' AS shop) FROM visits LIMIT 1)"
    calls = "predict('m', *), predict_proba('m', *), predict_proba('m', *, class := 'odd')"
    assert fetch(con, f"SELECT {calls} FROM {row}") == [(None, None, None)]
    assert fetch(con, f"SELECT predicted_size FROM ml_predict(MODEL m, {row})") == [(None,)]
    assert fetch(con, f"SELECT explain('m', *) FROM {row}") == [(None,)]


def test_a_classifier_has_the_classes_of_all_partitions(con: Session) -> None:
    query = (
        f"SELECT {FEATURES}, if(shop = 'north' AND size = 'odd', 'small', size) AS size FROM visits"
    )
    train(con, f"model_type = 'boosted_tree_classifier', {CLASSES}, max_iterations = 3", query)
    probabilities = fetch(con, f"SELECT shop, predict_proba('m', *) FROM ({query})")
    for shop, row in probabilities:
        assert list(row) == ["large", "odd", "small"]
        assert (row["odd"] == 0) == (shop == "north")
        assert math.isclose(sum(row.values()), 1, rel_tol=1e-6)


def test_a_partition_without_a_model_of_its_own(con: Session) -> None:
    query = f"SELECT {FEATURES}, if(shop = 'north', 'small', size) AS size FROM visits"
    options = f"model_type = 'logistic_reg', {CLASSES}"
    with pytest.raises(ConfigError) as error:
        train(con, options, query)
    assert "partition shop = 'north': the label 'size' is 'small' in all rows" in str(error.value)
    assert "unseen_partition = 'fallback'" in str(error.value)
    answer = dict(
        fetch(
            con,
            f"CREATE OR REPLACE MODEL m PARTITION BY shop OPTIONS ({options}, "
            f"unseen_partition = 'fallback') AS {query}",
        )
    )
    assert answer["notice"].startswith("partition shop = 'north' has no model of its own")
    assert fetch(con, "SELECT shop FROM ml_partitions(MODEL m)") == [("it's",), ("south",)]
    (result,) = fetch(con, f"SELECT count(predict('m', *)), count(*) FROM ({query})")
    assert result[0] == result[1]


def test_partitions_of_few_rows_have_no_model(con: Session) -> None:
    query = f"SELECT {FEATURES}, amount FROM visits WHERE shop <> 'south' OR id < 60"
    train(con, f"model_type = 'linear_reg', {NUMBERS}, min_partition_rows = 100", query)
    assert fetch(con, "SELECT shop FROM ml_partitions(MODEL m)") == [("it's",), ("north",)]
    with pytest.raises(UnknownCategoryError, match="shop = 'south'"):
        con.execute("SELECT predict('m', *) FROM visits").fetchall()


def test_predictions_appear_wherever_columns_do(con: Session, tmp_path: Path) -> None:
    file = tmp_path / "shops.duckdb"
    with sqlml.connect(str(file)) as other:
        other.execute(VISITS)
        train(other, f"model_type = 'boosted_tree_regressor', {NUMBERS}, max_iterations = 3")
        other.execute("CREATE VIEW scored AS SELECT *, predict('m', *) AS hat FROM visits")
        expected = fetch(other, "SELECT id, predict('m', *) FROM visits ORDER BY id")
    with sqlml.connect(str(file)) as again:
        assert fetch(again, "SELECT id, hat FROM scored ORDER BY id") == expected
        grouped = fetch(
            again,
            "WITH p AS (SELECT shop, predict('m', *) AS hat FROM visits WHERE predict('m', *) > ?) "
            "SELECT shop, count(*) FROM p GROUP BY shop HAVING count(*) > 5 ORDER BY shop",
            2,
        )
        assert sum(count for _, count in grouped) == sum(hat > 2 for _, hat in expected)
        again.execute(f"EXPORT MODEL m TO '{tmp_path}/m.sqlml'")
        again.execute(f"CREATE MODEL copied FROM '{tmp_path}/m.sqlml'")
        assert fetch(again, "SELECT id, predict('copied', *) FROM visits ORDER BY id") == expected
        frame = again.sql("SELECT shop, floor, hour, payment FROM visits ORDER BY id").df()
        scores = sqlml.compile(f"{tmp_path}/m.sqlml").predict(frame)
        assert [float(score) for score in scores] == [hat for _, hat in expected]


def test_what_is_stored_about_partitions(con: Session) -> None:
    train(con, f"model_type = 'linear_reg', {NUMBERS}, split = 'random', eval_fraction = 0.25")
    partitions = con.sql("FROM ml_partitions(MODEL m)").to_df()
    assert list(partitions.shop) == ["it's", "north", "south"]
    assert (partitions.rows + partitions.held_out).sum() == 1200
    assert partitions.held_out.min() > 50
    (stored,) = fetch(con, "SELECT r2_score, rows FROM ml_evaluate(MODEL m)")
    assert stored[1] == partitions.held_out.sum()
    assert partitions.r2_score.min() <= 1
    description = dict(fetch(con, "DESCRIBE MODEL m"))
    assert description["partitions"] == "3 by shop; unseen ones: error"
    by_shop = fetch(
        con,
        "SELECT shop, mean_absolute_error FROM ml_evaluate(MODEL m, TABLE visits, by := 'shop') "
        "ORDER BY shop",
    )
    assert [shop for shop, _ in by_shop] == ["it's", "north", "south"]
    ((_, statement),) = fetch(con, "SHOW CREATE MODEL m")
    before = fetch(con, "SELECT id, predict('m', *) FROM visits ORDER BY id")
    con.execute("DROP MODEL m")
    con.execute(statement)
    assert fetch(con, "SELECT id, predict('m', *) FROM visits ORDER BY id") == before
    answer = dict(fetch(con, "ALTER MODEL m RETRAIN PROMOTE IF r2_score >= CURRENT"))
    assert answer["promoted"].startswith("yes")
    importances = fetch(con, "SELECT feature FROM ml_permutation_importance(MODEL m)")
    assert sorted(importances) == [("floor",), ("hour",), ("payment",), ("shop",)]


def test_held_out_rows_are_the_same_in_sql(con: Session) -> None:
    for options in (", eval_fraction = 0.2", ", split = 'random', eval_fraction = 0.3"):
        train(con, f"model_type = 'linear_reg', {NUMBERS}{options}")
        (stored,) = fetch(con, "SELECT mean_absolute_error, rows FROM ml_evaluate(MODEL m)")
        ((rows, error),) = fetch(
            con, "SELECT rows, mean_absolute_error FROM ml_evaluate(MODEL m, label := 'amount')"
        )
        assert stored[1] == rows
        assert math.isclose(stored[0], error, rel_tol=1e-9)
    train(con, f"model_type = 'linear_reg', {NUMBERS}, split = 'random', calibration = 'split'")
    assert fetch(con, "SELECT count(predict_interval('m', *)) FROM visits") == [(1200,)]
    order = "split = 'seq', split_column = 'id', eval_fraction = 0.2"
    query = f"SELECT id, {FEATURES}, amount FROM visits"
    train(con, f"model_type = 'linear_reg', {NUMBERS}, {order}", query)
    held_out = fetch(con, "SELECT rows, held_out FROM ml_partitions(MODEL m)")
    assert all(abs(held / (rows + held) - 0.2) < 0.01 for rows, held in held_out)
    with pytest.raises(BindError, match="sqlml held out no rows"):
        con.execute("FROM ml_permutation_importance(MODEL m)")


def test_metrics_of_the_whole_model_are_those_of_all_held_out_rows(con: Session) -> None:
    query = f"SELECT {FEATURES}, id % 4 = 0 AS held_out, size FROM visits"
    train(
        con,
        f"model_type = 'logistic_reg', {CLASSES}, split = 'custom', split_column = 'held_out'",
        query,
    )
    metrics = ["accuracy", "log_loss", "roc_auc"]
    columns = ", ".join(metrics)
    (stored,) = fetch(con, f"SELECT {columns} FROM ml_evaluate(MODEL m)")
    (measured,) = fetch(
        con,
        f"SELECT {columns} FROM ml_evaluate(MODEL m, (FROM ({query}) WHERE held_out))",
    )
    for name, first, second in zip(metrics, stored, measured, strict=True):
        assert math.isclose(first, second, rel_tol=1e-9), name


def test_transform_is_computed_for_all_partitions(con: Session) -> None:
    con.execute(
        "CREATE OR REPLACE MODEL m PARTITION BY shop TRANSFORM (hour * hour AS squared, amount, "
        f"ml_standard_scaler(hour) OVER () AS scaled) OPTIONS (model_type = 'linear_reg', "
        f"{NUMBERS}) "
        f"AS SELECT {FEATURES}, amount, DATE '2026-01-01' + id::INTEGER % 50 AS day FROM visits"
    )
    (result,) = fetch(con, "SELECT count(predict('m', *)) FROM visits")
    assert result == (1200,)


def test_processes_train_the_same_models(con: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    options = f"model_type = 'boosted_tree_regressor', {NUMBERS}, max_iterations = 3"
    query = "SELECT shop || id % 5 AS shop, floor, hour, payment, amount FROM visits"
    train(con, options, query)
    expected = fetch(con, f"SELECT predict('m', *) FROM ({query})")
    monkeypatch.setattr(train_partitions, "SERIAL_SECONDS", 0.0)
    monkeypatch.setattr(train_partitions, "MAX_VERIFIED", 1)
    train(con, options, query)
    assert fetch(con, f"SELECT predict('m', *) FROM ({query})") == expected
    with pytest.raises(ConfigError, match="partition shop = 'south4': the label"):
        train(
            con,
            f"model_type = 'logistic_reg', {CLASSES}",
            "SELECT shop || id % 5 AS shop, hour, if(shop = 'south4', 'x', size) AS size "
            "FROM (SELECT * REPLACE (shop || id % 5 AS shop) FROM visits)".replace(
                "SELECT shop || id % 5 AS shop, hour", "SELECT shop, hour"
            ),
        )


BAD: dict[str, tuple[str, str, type[Exception], str]] = {
    "unknown column": ("nope", NUMBERS, MissingColumnError, "the query has no column 'nope'"),
    "label": ("amount", NUMBERS, ConfigError, "'amount' cannot be two of label"),
    "twice": ("shop, shop", NUMBERS, ConfigError, "'shop' cannot be two of label"),
    "number": ("hour", NUMBERS, ConfigError, "columns of strings, integers and booleans"),
    "null": ("payment", NUMBERS, ConfigError, "'payment' is NULL in"),
    "no rows": ("shop", f"{NUMBERS}, min_partition_rows = 9999", ConfigError, "no partition has"),
    "policy": ("shop", f"{NUMBERS}, unseen_partition = 'x'", ConfigError, "'fallback', not 'x'"),
    "zero": ("shop", f"{NUMBERS}, min_partition_rows = 0", ConfigError, "an integer, not 0"),
    "calibration": (
        "shop",
        f"{NUMBERS}, calibration = 'split', split = 'seq', split_column = 'floor'",
        ConfigError,
        "ALTER MODEL",
    ),
    "both": ("shop", f"{NUMBERS}, partition_by = 'shop'", ParseError, "not both"),
    "checkpoint": ("shop", f"{NUMBERS}, checkpoint = 'x'", ConfigError, "no checkpoint"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_clear_error(con: Session, name: str) -> None:
    partition_by, options, error_type, message = BAD[name]
    model_type = "boosted_tree_regressor" if name == "checkpoint" else "linear_reg"
    train(con, f"model_type = 'linear_reg', {NUMBERS}")
    versions = fetch(con, "SHOW VERSIONS IN MODEL m")
    with pytest.raises(error_type, match=message):
        train(con, f"model_type = '{model_type}', {options}", partition_by=partition_by)
    assert fetch(con, "SHOW VERSIONS IN MODEL m") == versions


def test_options_that_need_partitions(con: Session) -> None:
    for option in ("unseen_partition = 'null'", "min_partition_rows = 5"):
        with pytest.raises(ConfigError, match="needs PARTITION BY"):
            con.execute(
                f"CREATE MODEL n OPTIONS (model_type = 'linear_reg', {NUMBERS}, {option}) AS "
                "SELECT hour, amount FROM visits"
            )
    con.execute(
        f"CREATE OR REPLACE MODEL n OPTIONS (model_type = 'linear_reg', {NUMBERS}) AS "
        "SELECT hour, amount FROM visits"
    )
    with pytest.raises(BindError, match="has no partitions: CREATE MODEL m PARTITION BY"):
        con.execute("FROM ml_partitions(MODEL n)")
    with pytest.raises(ConfigError, match="so they take no PARTITION BY"):
        con.execute(
            "CREATE MODEL k PARTITION BY shop OPTIONS (model_type = 'kmeans') AS "
            "SELECT shop, coalesce(hour, 0) AS hour FROM visits"
        )


@pytest.mark.parametrize("target", ["m.onnx", "m.sql", "m.duckdb_extension"])
def test_forms_that_cannot_hold_partitions(con: Session, tmp_path: Path, target: str) -> None:
    train(con, f"model_type = 'linear_reg', {NUMBERS}")
    with pytest.raises(BackendError):
        con.execute(f"EXPORT MODEL m TO '{tmp_path}/{target}'")
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def many(con: Session) -> Session:
    """A model of 300 partitions, and a table `crowd` of 6,000 rows in a mixed order."""
    con.execute(
        "CREATE TABLE crowd AS SELECT i AS id, hash(i) % 300 AS k, hash(i, 1) % 100 / 10 AS x, "
        "k * x + hash(i, 2) % 100 / 100 AS y FROM range(6000) AS t(i)"
    )
    con.execute(
        "CREATE MODEL crowded PARTITION BY k OPTIONS (model_type = 'linear_reg', label = 'y', "
        "split = 'none') AS SELECT k, x, y FROM crowd"
    )
    con.execute(
        "CREATE TABLE expected AS SELECT id, predict('crowded', *) AS hat FROM crowd LIMIT 6000"
    )
    return con


@pytest.mark.parametrize(
    ("query", "sorts"),
    [
        ("SELECT id, predict('crowded', *) AS hat FROM crowd", True),
        ("SELECT c.id, predict('crowded', c.*) AS hat FROM crowd AS c WHERE id % 2 = 0", True),
        ("SELECT id, predict('crowded', *) AS hat FROM (FROM crowd ORDER BY k)", False),
        ("SELECT id, predict('crowded', *) AS hat FROM crowd LIMIT 50", False),
        ("SELECT id, predict('crowded', *) AS hat FROM expected JOIN crowd USING (id)", False),
        ("SELECT id, predict('crowded', k, x) AS hat FROM crowd", False),
    ],
)
def test_mixed_rows_of_many_partitions_are_sorted(many: Session, query: str, sorts: bool) -> None:
    rows = fetch(many, query)
    expected = dict(fetch(many, "FROM expected"))
    assert all(expected[row] == hat for row, hat in rows)
    assert [row for row, _ in rows][:3] in ([0, 1, 2], [0, 2, 4]) or "ORDER BY k" in query
    assert ("sqlml_number" in many.plan(query).sql) == sorts
    total = "SELECT k, sum(predict('crowded', *)) AS s FROM crowd GROUP BY k ORDER BY k LIMIT 3"
    plan = many.plan(total).sql
    assert "ORDER BY k) AS" in plan.replace('"', "")
    assert "sqlml_number" not in plan


@pytest.mark.parametrize("model_type", ["linear_reg", "boosted_tree_regressor"])
def test_partitions_with_categories_of_their_own(con: Session, model_type: str) -> None:
    query = (
        "SELECT k, if(x < 1, NULL, k || '-' || (x * 10)::INTEGER % 20) AS product, y "
        "FROM (SELECT hash(i) % 12 AS k, hash(i, 1) % 100 / 10 AS x, k * x AS y "
        "FROM range(3000) AS t(i))"
    )
    options = f"model_type = '{model_type}', label = 'y', split = 'none'"
    con.execute(f"CREATE OR REPLACE MODEL m PARTITION BY k OPTIONS ({options}) AS {query}")
    con.execute("ALTER MODEL m RETRAIN PARTITION (k = 3)")
    con.execute(
        f"CREATE OR REPLACE MODEL own_0 OPTIONS ({options}) AS "
        f"SELECT product, y FROM ({query}) WHERE k = 7"
    )
    products = "SELECT 7 AS k, unnest(['7-1', '7-19', '3-1', 'other', '', NULL]) AS product"
    pairs = fetch(con, f"SELECT predict('m', *), predict('own_0', product) FROM ({products})")
    assert all(whole == approx(own) for whole, own in pairs)
    assert len({whole for whole, _ in pairs}) > 2


def test_too_many_partitions(con: Session) -> None:
    with pytest.raises(ConfigError, match="gives 100,001 partitions, and a model has at most"):
        con.execute(
            "CREATE MODEL too_many PARTITION BY i "
            f"OPTIONS (model_type = 'linear_reg', {NUMBERS}) AS "
            "SELECT i, i / 7 AS x, i / 3 AS amount FROM range(100001) AS t(i)"
        )
    assert fetch(con, "SHOW MODELS LIKE 'too_many'") == []
