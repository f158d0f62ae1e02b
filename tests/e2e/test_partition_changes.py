"""RETRAIN PARTITION, DROP PARTITION and EXPORT MODEL ... PARTITION."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sqlml
from sqlml.errors import CatalogError, ConfigError, ParseError
from sqlml.session.session import Session
from tests.support.partitioned_models import CLASSES, FEATURES, NUMBERS, VISITS, fetch, train


@pytest.fixture(scope="module")
def con() -> Iterator[Session]:
    with sqlml.connect() as connection:
        connection.execute(VISITS)
        yield connection


def test_a_collation_retrains_only_the_partition_that_is_named(con: Session) -> None:
    con.execute(
        "CREATE TABLE collated AS SELECT ['a', 'A'][i % 2 + 1] COLLATE NOCASE AS k, i AS x, "
        "i * (i % 2 + 1) AS y FROM range(200) t(i)"
    )
    con.execute(
        "CREATE MODEL collated_k PARTITION BY k OPTIONS (model_type = 'linear_reg', label = 'y') "
        "AS SELECT * FROM collated"
    )
    con.execute("ALTER MODEL collated_k RETRAIN PARTITION (k = 'A')")
    counts = fetch(con, "SELECT k, rows + held_out FROM ml_partitions(MODEL collated_k)")
    assert sorted(counts) == [("A", 100), ("a", 100)]
    with pytest.raises(ConfigError, match="'k' has strings"):
        con.execute("ALTER MODEL collated_k RETRAIN PARTITION (k = 1)")


def test_one_partition_is_trained_again(con: Session) -> None:
    train(con, f"model_type = 'linear_reg', {NUMBERS}, eval_fraction = 0.2")
    con.execute("CREATE OR REPLACE TABLE first AS SELECT id, predict('m', *) AS hat FROM visits")
    definition = fetch(con, "SHOW CREATE MODEL m")
    difference = (
        "SELECT shop, avg(predict('m', *) - hat)::INTEGER FROM visits JOIN first USING (id) "
        "GROUP BY shop ORDER BY shop"
    )
    for _ in range(2):
        con.execute("ALTER MODEL m RETRAIN PARTITION (shop = 'north')")
    assert fetch(con, difference) == [("it's", 0), ("north", 0), ("south", 0)]
    sizes = fetch(
        con,
        "SELECT bytes FROM sqlml.model_versions WHERE name = 'm' ORDER BY version DESC LIMIT 2",
    )
    assert sizes[0] == sizes[1]  # Nothing is added each time.
    other = f"SELECT {FEATURES}, amount + 100 AS amount FROM visits"
    con.execute(f"ALTER MODEL m RETRAIN PARTITION (shop = 'north') AS {other}")
    assert fetch(con, difference) == [("it's", 0), ("north", 100), ("south", 0)]
    con.execute(
        f"ALTER MODEL m RETRAIN PARTITION (Shop = 'new') AS {other}".replace(
            FEATURES, "* EXCLUDE (amount, size, is_large, noise, id) REPLACE ('new' AS shop)"
        )
    )
    assert fetch(con, "SELECT shop FROM ml_partitions(MODEL m)") == [
        ("it's",),
        ("new",),
        ("north",),
        ("south",),
    ]
    assert fetch(con, "SHOW CREATE MODEL m") == definition
    (counts,) = fetch(
        con,
        "SELECT (SELECT sum(held_out) FROM ml_partitions(MODEL m)), rows FROM ml_evaluate(MODEL m)",
    )
    assert counts[0] == counts[1]


def test_one_partition_is_promoted(con: Session) -> None:
    train(con, f"model_type = 'linear_reg', {NUMBERS}, eval_fraction = 0.2")
    retrain = "ALTER MODEL m RETRAIN PARTITION (shop = 'south') PROMOTE IF"
    answer = dict(fetch(con, f"{retrain} mean_absolute_error <= CURRENT"))
    assert answer["promoted"].startswith("yes")
    (before,) = fetch(con, "SELECT default_version FROM sqlml.catalog_models WHERE name = 'm'")
    worse = f"SELECT {FEATURES}, amount + id AS amount FROM visits"
    answer = dict(fetch(con, f"{retrain} mean_absolute_error < 0.1 AS {worse}"))
    assert answer["promoted"].startswith("no")
    assert fetch(con, "SELECT default_version FROM sqlml.catalog_models WHERE name = 'm'") == [
        before
    ]


def test_one_partition_is_dropped(con: Session) -> None:
    options = f"model_type = 'boosted_tree_classifier', {CLASSES}, max_iterations = 2"
    train(con, f"{options}, unseen_partition = 'null'", partition_by="shop, floor")
    answer = dict(fetch(con, "ALTER MODEL m DROP PARTITION (floor = 1)"))
    assert answer["partitions"] == "3"
    assert fetch(con, "SELECT DISTINCT predict('m', *) IS NULL, floor FROM visits ORDER BY 2") == [
        (False, 0),
        (True, 1),
    ]
    con.execute("ALTER MODEL m DROP PARTITION (shop = 'it''s', floor = 0)")
    assert fetch(con, "SELECT shop, floor FROM ml_partitions(MODEL m)") == [
        ("north", 0),
        ("south", 0),
    ]
    con.execute("ALTER MODEL m DROP PARTITION (shop = 'north')")
    for change, error, message in (
        ("(shop = 'south')", CatalogError, "this would drop all partitions"),
        ("(shop = 'x')", CatalogError, "has no partition with shop = 'x'"),
        ("(hour = 1)", ConfigError, "'hour' is no partition column; the model has shop, floor"),
        ("()", ParseError, "expected a column and its value"),
        ("(shop = 1.5)", ParseError, "must be a literal"),
    ):
        with pytest.raises(error, match=re.escape(message)):
            con.execute(f"ALTER MODEL m DROP PARTITION {change}")


def test_a_dropped_partition_costs_the_calibration(con: Session) -> None:
    train(con, f"model_type = 'linear_reg', {NUMBERS}, calibration = 'split', split = 'random'")
    answer = dict(fetch(con, "ALTER MODEL m DROP PARTITION (shop = 'south')"))
    assert answer["calibration"] == "not kept"
    rows = "SELECT * FROM visits WHERE shop = 'north'"
    con.execute(f"ALTER MODEL m CALIBRATE USING ({rows})")
    ((width,),) = fetch(con, f"SELECT max(predict_interval('m', *).upper) FROM ({rows})")
    assert math.isfinite(width)


@pytest.mark.parametrize("target", ["m.onnx", "m.sqlml"])
def test_one_partition_is_exported(con: Session, tmp_path: Path, target: str) -> None:
    train(con, f"model_type = 'boosted_tree_regressor', {NUMBERS}, max_iterations = 3")
    con.execute(f"EXPORT MODEL m PARTITION (shop = 'it''s') TO '{tmp_path}/{target}'")
    con.execute(f"CREATE OR REPLACE MODEL alone FROM '{tmp_path}/{target}'")
    inputs = "floor, hour, coalesce(payment, 'card') AS payment"
    (result,) = fetch(
        con,
        "SELECT count(*), "
        "count(*) FILTER (WHERE predict('m', *) = predict('alone', * EXCLUDE shop)) "
        f"FROM (SELECT shop, {inputs} FROM visits WHERE shop = 'it''s')",
    )
    assert result[0] == result[1] > 300
    for partition, message in (
        ("(shop = 'x')", "has no partition with shop = 'x'"),
        ("(floor = 1)", "'floor' is no partition column"),
    ):
        with pytest.raises((CatalogError, ConfigError), match=message):
            con.execute(f"EXPORT MODEL m PARTITION {partition} TO '{tmp_path}/other.sqlml'")
    with pytest.raises(CatalogError, match="has no partitions"):
        con.execute(f"EXPORT MODEL alone PARTITION (shop = 'x') TO '{tmp_path}/other.sqlml'")
