"""ALTER MODEL .. RETRAIN, and what is told of how a model was trained."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sklearn import metrics
from sklearn.linear_model import LogisticRegression

import sqlml
from sqlml import errors
from tests.support.trained_by_hand import rows_of

TABLE = """
    CREATE TABLE t AS SELECT (hash(i, 1) % 70)::INTEGER AS a,
        ['x', 'y', NULL][(hash(i, 2) % 3)::INTEGER + 1] AS b,
        CASE WHEN a + hash(i, 9) % 30 > 45 THEN 'p' ELSE 'q' END AS y
    FROM range(1500) r(i)
"""
CREATE = (
    "CREATE MODEL m OPTIONS (model_type = 'boosted_tree_classifier', label = 'y', "
    "n_estimators = 3, positive_class = 'p') AS FROM t WHERE a < 30"
)


@pytest.fixture
def con() -> Any:
    with sqlml.connect() as made:
        made.execute(TABLE)
        made.execute(CREATE)
        yield made


def default(con: sqlml.Session) -> int:
    return int(dict(con.execute("DESCRIBE MODEL m").fetchall())["version"])


def told(con: sqlml.Session, rest: str, model: str = "m") -> dict[str, str]:
    return dict(con.execute(f"ALTER MODEL {model} RETRAIN {rest}").fetchall())


def test_a_retrained_version_becomes_the_default(con: sqlml.Session) -> None:
    assert told(con, "AS FROM t")["promoted"] == "yes"
    assert default(con) == 2
    ((_, text),) = con.execute("SHOW CREATE MODEL m").fetchall()
    assert text.endswith("AS FROM t;") and "positive_class = 'p'" in text
    con.execute("ALTER MODEL m SET OPTIONS (positive_class = 'q')")
    told(con, "")
    ((_, text),) = con.execute("SHOW CREATE MODEL m").fetchall()
    assert "AS FROM t;" in text and "positive_class = 'q'" in text


def test_a_version_is_retrained_by_its_own_definition(con: sqlml.Session) -> None:
    told(con, "AS FROM t")
    told(con, "", "m/1")
    found = con.execute("SELECT program FROM sqlml.catalog_versions WHERE version IN (1, 3)")
    assert len(set(found.fetchall())) == 1 and default(con) == 3


def test_promotion_compares_both_on_the_rows_held_out_now(con: sqlml.Session) -> None:
    before = con.execute("SELECT program FROM sqlml.catalog_versions").fetchall()
    found = told(con, "AS FROM t PROMOTE IF roc_auc >= CURRENT")["promoted"]
    assert found.startswith("yes: roc_auc ") and default(con) == 2 and before
    first, last = found.removeprefix("yes: roc_auc ").split(" is >= ")
    frame, y, mask = rows_of(con, "FROM t", "y", seed=0)
    for version, known in ((2, first), (1, last)):
        scored = f"SELECT predict_proba('m/{version}', *) AS s FROM t"
        scores = con.execute(scored).df()["s"].to_numpy()
        score = metrics.roc_auc_score(y[mask] == "p", scores[mask])
        assert float(known) == pytest.approx(score, rel=1e-5)
    assert len(frame) == 1500


def test_what_falls_short_is_kept_as_a_version(con: sqlml.Session) -> None:
    found = told(con, "PROMOTE IF roc_auc > 0.9999 AS FROM t")["promoted"]
    assert found.startswith("no: roc_auc ") and found.endswith("is not > 0.9999")
    assert default(con) == 1
    assert con.execute("SELECT count(predict('m/2', *)) FROM t").fetchall() == [(1500,)]
    assert told(con, "PROMOTE IF log_loss < 9 AS FROM t")["promoted"].startswith("yes")


@pytest.mark.parametrize(
    ("rest", "error", "says"),
    [
        (
            "PROMOTE IF auc > CURRENT",
            errors.ConfigError,
            "unknown metric 'auc'; metrics: precision",
        ),
        (
            "AS SELECT * FROM t LIMIT 100 PROMOTE IF roc_auc > 0.5",
            errors.ConfigError,
            "holds out none of these rows",
        ),
        (
            "AS SELECT a, 'p' || b AS y FROM t PROMOTE IF log_loss < CURRENT",
            errors.ConfigError,
            "o",
        ),
        ("AS SELECT a, b FROM t", errors.MissingColumnError, "option label: .* no column 'y'"),
        ("AS SELECT nothing FROM t", Exception, "nothing"),
    ],
)
def test_a_failed_retraining_changes_nothing(
    con: sqlml.Session, rest: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        con.execute(f"ALTER MODEL m RETRAIN {rest}")
    assert con.execute("SELECT count(*) FROM sqlml.catalog_versions").fetchall() == [(1,)]


def test_only_what_was_trained_is_retrained(con: sqlml.Session) -> None:
    frame = con.execute("SELECT a FROM t").df()
    con.create_model("other", LogisticRegression().fit(frame, frame["a"] > 30))
    with pytest.raises(errors.CatalogError, match="did not train model other"):
        con.execute("ALTER MODEL other RETRAIN")


def test_an_estimator_of_python_is_retrained(con: sqlml.Session) -> None:
    con.train("s", LogisticRegression(C=0.5), "SELECT a, y FROM t", label="y", eval_fraction=0.2)
    found = told(con, "AS SELECT a, y FROM t WHERE a > 3 PROMOTE IF roc_auc >= CURRENT", "s")
    assert found["model_type"] == "LogisticRegression by sklearn"
    assert con.estimator("s").C == 0.5


def test_what_training_measured_is_told(con: sqlml.Session) -> None:
    con.execute(
        "CREATE OR REPLACE MODEL m OPTIONS (model_type = 'boosted_tree_classifier', label = 'y', "
        "n_estimators = 3, eval_fraction = 0.2, seed = 7) AS FROM t"
    )
    frame, y, held = rows_of(con, "FROM t", "y")
    model = con.estimator("m")
    (found,) = con.sql("FROM ml_evaluate(MODEL m)").to_arrow_table().to_pylist()
    proba, truth = model.predict_proba(frame[held]), y[held]
    assert found["rows"] == held.sum() and found["held_out"] is True
    assert found["accuracy"] == metrics.accuracy_score(truth, model.predict(frame[held]))
    assert found["roc_auc"] == metrics.roc_auc_score(truth == "q", proba[:, 1])
    loss = metrics.log_loss(truth == "q", proba[:, 1])
    assert found["log_loss"] == pytest.approx(loss, rel=1e-6)
    rounds = con.execute(
        "SELECT iteration, loss > eval_loss - 1, seconds > 0 FROM ML.TRAINING_INFO(MODEL m)"
    ).fetchall()
    assert rounds == [(1, True, True), (2, True, True), (3, True, True)]
    last = con.execute("SELECT min(eval_loss) FROM ml_training_info(MODEL m)").fetchall()[0][0]
    assert last == pytest.approx(loss, rel=1e-5)


def test_features_are_told(con: sqlml.Session) -> None:
    found = con.sql("FROM ml_feature_info(MODEL m)").to_arrow_table().to_pylist()
    known = con.execute(
        "SELECT min(a), max(a), avg(a), stddev_pop(a), count(*) - count(b) FROM t WHERE a < 30"
    ).fetchall()[0]
    assert [row["input"] for row in found] == ["a", "b"]
    assert (found[0]["min"], found[0]["max"]) == known[:2] and found[0]["type"] == "INTEGER"
    assert (found[0]["mean"], found[0]["stddev"]) == pytest.approx(known[2:4])
    assert found[1]["category_count"] == 2 and found[1]["null_count"] == known[4]
    assert con.execute("FROM ml_trial_info(MODEL m)").fetchall() == []


def test_what_is_told_stands_beside_other_tables(con: sqlml.Session) -> None:
    rows = con.execute(
        "WITH e AS (SELECT accuracy FROM ml_evaluate(MODEL 'm')) SELECT count(predict('m', *)), "
        "any_value(accuracy) BETWEEN 0 AND 1, (SELECT count(*) FROM ml_training_info(MODEL m/1)) "
        "FROM t, e"
    ).fetchall()
    assert rows == [(1500, True, 3)]
    con.execute("CREATE VIEW told AS SELECT iteration FROM ml_training_info(MODEL m)")
    assert con.execute("SELECT count(*) FROM told").fetchall() == [(3,)]
    assert "sqlml_plan" not in dict(con.execute("EXPLAIN FROM ml_evaluate(MODEL m)").fetchall())
    assert con.plan("FROM ml_evaluate(MODEL m)").calls == ()


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("FROM ml_feature_info(MODEL m, TABLE t)", "takes a model alone"),
        ("SELECT ml_evaluate(MODEL m)", "belongs in FROM"),
        ("FROM ml_evaluate(MODEL nobody)", "unknown model 'nobody'"),
        ("FROM ml_evaluate(MODEL ?)", "takes a model name"),
    ],
)
def test_a_form_that_is_not_well_written(con: sqlml.Session, query: str, says: str) -> None:
    parameters = ["m"] if "?" in query else None
    with pytest.raises(errors.SqlmlError, match=says):
        con.execute(query, parameters)


def test_nothing_is_told_of_what_was_not_trained(con: sqlml.Session) -> None:
    frame = con.execute("SELECT a FROM t").df()
    con.create_model("other", LogisticRegression().fit(frame, frame["a"] > 30))
    with pytest.raises(errors.BindError, match="did not train model other"):
        con.execute("FROM ml_training_info(MODEL other)")
    with pytest.raises(errors.BindError, match="name the rows"):
        con.execute("FROM ml_evaluate(MODEL other)")


@pytest.mark.parametrize(
    "change",
    [
        "facts = '{'",
        "facts = '[]'",
        'facts = json_merge_patch(facts, \'{"metrics": {"x": "y"}}\')',
        "facts = json_merge_patch(facts, '{\"rounds\": [1]}')",
        "facts = json_merge_patch(facts, '{\"query\": 3}')",
    ],
)
def test_forged_facts_are_refused(con: sqlml.Session, change: str) -> None:
    con.execute(f"UPDATE sqlml.catalog_trainings SET {change}")
    for statement in ("DESCRIBE MODEL m", "SHOW CREATE MODEL m", "FROM ml_evaluate(MODEL m)"):
        with pytest.raises(errors.ArtifactError, match="training record for model 'm' is damaged"):
            con.execute(statement)
    assert con.execute("SELECT count(predict('m', *)) FROM t").fetchall() == [(1500,)]


@pytest.mark.parametrize(
    "facts",
    ['{"query": "SELECT 1; DROP TABLE t"}', '{"transform": ["a); DROP TABLE t; --"]}'],
)
def test_a_forged_definition_is_not_shown(con: sqlml.Session, facts: str) -> None:
    con.execute("UPDATE sqlml.catalog_trainings SET facts = json_merge_patch(facts, ?)", [facts])
    with pytest.raises(errors.ArtifactError, match="damaged"):
        con.execute("SHOW CREATE MODEL m")


def test_the_current_model_is_measured_with_its_own_constants(con: sqlml.Session) -> None:
    con.execute(
        "CREATE TABLE h AS SELECT range % 100 AS x, (x > 50)::INT AS z, false AS held "
        "FROM range(1000)"
    )
    con.execute("CREATE TABLE moved AS SELECT x + 1000 AS x, z, held FROM h")
    con.execute("CREATE TABLE e AS SELECT x, z, true AS held FROM h LIMIT 200")
    con.execute(
        "CREATE MODEL s TRANSFORM (ml_standard_scaler(x) OVER () AS f, z, held) OPTIONS "
        "(model_type = 'logistic_reg', label = 'z', split = 'custom', split_column = 'held') "
        "AS FROM h"
    )
    again = "AS FROM moved UNION ALL FROM e PROMOTE IF accuracy >= CURRENT"
    assert told(con, again, "s")["promoted"].endswith("is not >= 1")
    with pytest.raises(errors.ConfigError, match="which needs 'x': add it to the query"):
        told(con, "AS SELECT x AS v, z, held FROM h PROMOTE IF accuracy >= CURRENT", "s")


@pytest.mark.parametrize("name", ["workers", "forced_splits_filename", "model_out", "callbacks"])
def test_a_stored_definition_has_no_more_options_than_a_statement(name: str) -> None:
    with sqlml.connect() as con:
        con.execute(TABLE)
        con.execute(CREATE.replace("'y',", "'y', library = 'lightgbm',"))
        ((facts,),) = con.execute("SELECT facts FROM sqlml.catalog_trainings").fetchall()
        forged = json.loads(facts)
        forged["options"][name] = "/etc/passwd"
        con.execute("UPDATE sqlml.catalog_trainings SET facts = ?", [json.dumps(forged)])
        with pytest.raises(errors.ConfigError, match=f"unknown option '{name}'"):
            told(con, "")
        forged["options"] = {**json.loads(facts)["options"], "objective": "binary fs=/etc/passwd"}
        con.execute("UPDATE sqlml.catalog_trainings SET facts = ?", [json.dumps(forged)])
        with pytest.raises(errors.ConfigError, match="must be a word of LightGBM's"):
            told(con, "")
