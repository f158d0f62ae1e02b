"""Each rule of the planner on small statements: what it changes is kept in tests/golden/rewrites.

The statements are planned on a DuckDB with small models. In a function's name the model's stands in
place of its hash, and functions of the engine's own have no `system.main.` before them.
Set SQLML_UPDATE_GOLDEN=1 to write the files anew, and read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.bounded_cache import RecentCache
from sqlml.dialects import DUCKDB
from sqlml.dialects.duckdb import DuckDB
from sqlml.errors import ConfigError
from sqlml.importers.registry import import_model
from sqlml.planner import plan_cache
from sqlml.planner.binding.context import Context
from sqlml.planner.plan import call_draft
from sqlml.planner.plan.plan import Plan
from sqlml.planner.plan_statement import plan_statement, read_statement
from sqlml.planner.program import function_spec
from sqlml.planner.rewrites import shared_calls
from sqlml.planner.rewrites.apply_rules import RULES, apply_rules
from tests.support.cascaded import put_before, put_filter_before

GOLDEN = Path(__file__).parents[3] / "golden" / "rewrites"

STATEMENTS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "metric_aggregates": {
            "a group": "SELECT k, rmse(a, b) FROM t GROUP BY k",
            "a filter and a window": "SELECT mae(a, b, weight := k) FILTER (WHERE k > 2) OVER w "
            "AS e FROM t WINDOW w AS (PARTITION BY k)",
            "an area by ranks": "SELECT roc_auc(a > 0, b) AS area FROM t",
        },
        "table_form": {
            "a table": "SELECT a, predicted_label FROM ml_predict(MODEL forest, TABLE t) AS p",
            "a query in another's rows": "FROM ML.PREDICT(MODEL linear, (SELECT * EXCLUDE "
            "(predicted_label, predicted_label_probs) FROM ml_predict(MODEL forest, TABLE t)))",
        },
        "cascaded_calls": {
            "a label": "SELECT predict('forest', *, approximate := true) AS y FROM t",
            "a probability is exact": "SELECT predict('forest', *, approximate := true) AS y, "
            "predict_proba('forest', *, approximate := true, class := 1) AS p FROM t",
        },
        "probability_comparisons": {
            "above a number": "SELECT a FROM t WHERE predict_proba('linear', *, class := 1) > 0.8",
            "between two": "SELECT a FROM t "
            "WHERE predict_proba('linear', *, class := 1) BETWEEN 0.2 AND 0.8",
            "the first of two classes falls with the score": "SELECT a FROM t "
            "WHERE 0.5 <= predict_proba('linear', *, class := 0)",
        },
        "shared_calls": {
            "two outputs": "SELECT predict('forest', *) AS y, "
            "predict_proba('forest', *, class := 1) AS p FROM t",
            "rows that a filter passes on": "SELECT predict('forest', t.*) AS y FROM t, d "
            "WHERE predict('forest', t.*) = 1",
            "a query that groups": "SELECT predict('forest', *) AS y, "
            "max(predict_proba('forest', t.*, class := 1)) AS p FROM t "
            "GROUP BY predict('forest', a, b)",
        },
        "volatile_calls": {
            "a filter of a model that refuses NULL": "SELECT a FROM t WHERE predict('near', *) = 1",
            "a key of a query in another": "SELECT y FROM (SELECT predict('near', t.*) AS y FROM t "
            "GROUP BY predict('near', a, b) ORDER BY predict('near', *)) AS x",
        },
        "models_in_from": {
            "a filter and a column": "SELECT *, predict('forest', *) AS y FROM t "
            "WHERE predict_proba('forest', *, class := 1) > 0.8 AND k > 2",
        },
        "rows_in_from": {
            "a row that is packed once": "SELECT a, predict('forest', *) AS y FROM t WHERE k > 2",
            "filters below": "SELECT a, predict('forest', *) AS y FROM t "
            "WHERE k > 2 AND predict('forest', *) = 1",
        },
        "rows_by_model": {
            "a column of names": "SELECT k, predict(model, *) AS y FROM named WHERE k > 1",
            "groups, whose rows need no order": "SELECT model, avg(predict(model, *)) AS y "
            "FROM named WHERE k > 1 GROUP BY model",
        },
        "planned_calls": {
            "a model that rows name": "SELECT predict(model, *) AS y FROM named WHERE k > 2",
            "a function": "SELECT a, predict('forest', *) AS y FROM t",
            "an expression": "SELECT predict_score('linear', *) AS s FROM t",
            "calls in calls": "SELECT predict('forest', a, predict('forest', a, b)) AS y FROM t",
        },
        "gated_sources": {
            "a joined table": "SELECT predict('forest', a := t.a, b := d.c, approximate := true) "
            "AS y FROM t LEFT JOIN d ON t.k = d.id",
            "a function of the user's": "SELECT k, predict('forest', *, approximate := true) AS y "
            "FROM (SELECT k, a, slow(b) AS b FROM t) AS q",
            "a joined subquery that groups": "SELECT predict('forest', a := t.a, b := g.c, "
            "approximate := true) AS y FROM t LEFT JOIN (SELECT id, max(c) AS c FROM d "
            "GROUP BY id) AS g ON t.k = g.id WHERE b > 0",
            "a correlated subquery": "SELECT k, predict('forest', *, approximate := true) AS y "
            "FROM (SELECT k, a, (SELECT avg(c) FROM d WHERE d.id <= t.k) AS b FROM t) AS q",
        },
        "top_k_filters": {
            "the best rows": "SELECT k FROM t LEFT JOIN d ON t.k = d.id WHERE k > 2 ORDER BY "
            "predict_proba('forest', a := t.a, b := d.c, class := 1, approximate := true) DESC "
            "LIMIT 5",
        },
        "unneeded_joins": {
            "a key that is unique": "SELECT predict('forest', *) AS y FROM t "
            "LEFT JOIN d ON t.k = d.id",
        },
        "literal_arguments": {
            "a number": "SELECT predict('forest', *, b := 0.25) AS y FROM t",
            "an expression is none": "SELECT predict('forest', *, b := 0.5 / 2) AS y FROM t",
        },
    }
)

FINDS_OUT = frozenset({"called_models"})
"""Rules that change nothing."""

WHOLE = frozenset({"planned_calls", "literal_arguments"})
"""What no statement is planned without."""

unseen = count()
"""Numbers that no statement has had yet, so that the plan cache knows none of them."""


class CopyingDuckDB(DuckDB):
    """DuckDB, for which rows are packed in FROM as for Spark."""

    copies_rows = True


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    rng = np.random.default_rng(0)
    x = rng.integers(-8, 9, (400, 2)) / 4
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    linear = LogisticRegression().fit(x, y)
    linear.coef_, linear.intercept_ = np.array([[1.0, -2.0]]), np.array([0.5])
    with sqlml.connect() as con:
        con.execute("CREATE TABLE t (a DOUBLE, b DOUBLE, k INTEGER)")
        con.execute("CREATE TABLE d (id INTEGER PRIMARY KEY, c DOUBLE)")
        con.execute("CREATE TABLE named (a DOUBLE, b DOUBLE, k INTEGER, model VARCHAR)")
        con.execute(
            "INSERT INTO named VALUES (0, 1, 2, 'forest'), (3, 4, 5, 'near'), (1, 2, 2, 'forest')"
        )
        con.create_function("slow", float, ["DOUBLE"], "DOUBLE")
        for name, model in {
            "linear": linear,
            "forest": RandomForestClassifier(40, max_depth=6, random_state=0).fit(x, y),
            "near": KNeighborsClassifier(3).fit(x, y),
        }.items():
            con.create_model(name, model, inputs=["a", "b"], verify=False)
        tree = DecisionTreeClassifier(max_depth=2, random_state=0).fit(x[:, :1], y)
        put_before(con, "forest", import_model(tree, ["a"]).program)
        line = LinearRegression().fit(x[:, :1], y)
        line.coef_, line.intercept_ = np.array([0.021395976217525387]), 0.4348529026635045
        put_filter_before(con, "forest", import_model(line, ["a"]).program)
        yield con


@pytest.fixture
def context(con: sqlml.Session, monkeypatch: pytest.MonkeyPatch) -> Context:
    """What the session's planner asks of its engine, on each machine with native functions.

    The least work is worth a literal's, and two models that rows are sorted.
    """
    monkeypatch.setattr(call_draft, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(shared_calls, "MAX_UNSORTED_MODELS", 1)
    monkeypatch.setattr(function_spec, "_admitted", RecentCache())
    seen: list[Context] = []

    def noted(sql: str, parameters: Any, context: Context) -> Plan | None:
        seen.append(context)
        return plan_statement(sql, parameters, context)

    monkeypatch.setattr(plan_cache, "plan_statement", noted)
    con.plan(f"SELECT predict('linear', *) AS y{next(unseen)} FROM t")
    return replace(seen[0], why_no_columns=lambda _: None)


def planned(sql: str, context: Context, without: tuple[str, ...] = ()) -> str:
    made = plan_statement(sql, None, context, without)
    assert made is not None
    text = DUCKDB.display(made.sql)
    for call in made.calls:
        text = text.replace(call.spec.program_hash[:24], call.model)
        for function in call.functions_of_models:
            text = text.replace(function.name, "sqlml_named_" + "_".join(call.models))
            text = re.sub(r"sqlml_models_\w{24}", "sqlml_models", text)
        if call.small_call is not None:
            text = text.replace(call.small_call.spec.program_hash[:24], f"small_{call.model}")
    return text


def round_bound(match: re.Match[str]) -> str:
    """Round a bound of scores, whose last digits are those of this processor's exp.

    `tests/e2e/test_probability_comparisons.py` shows that they are right.
    """
    return f"'{round(float(match[1]), 9)}'::DOUBLE"


def entry(rule: str, title: str, sql: str, context: Context) -> str:
    """The statement as the rule makes it, and as it is without it where it can be."""
    if rule == "rows_in_from":
        context = replace(context, dialect=CopyingDuckDB())
    if rule in ("metric_aggregates", "table_form"):
        made = apply_rules(read_statement(sql, None, context), last_rule=rule).text
        return f"-- {title}\n{sql};\n-- becomes\n{made};\n"
    made = planned(sql, context)
    if rule == "probability_comparisons":
        made = re.sub(r"'(-?\d\.\d{9,}(?:e-\d+)?)'::DOUBLE", round_bound, made)
    if rule in WHOLE:
        return f"-- {title}\n{sql};\n-- becomes\n{made};\n"
    before = planned(sql, context, (rule,))
    assert before != made, f"{rule} does nothing to {title}"
    return f"-- {title}\n{sql};\n-- without the rule\n{before};\n-- with it\n{made};\n"


def test_every_rule_has_a_golden_file() -> None:
    rules = {rule.__name__ for rule in RULES} - FINDS_OUT | {"literal_arguments"}
    assert set(STATEMENTS) == rules
    assert {path.stem for path in GOLDEN.glob("*.sql")} == rules


@pytest.mark.parametrize("rule", list(STATEMENTS))
def test_the_text_that_a_rule_makes(rule: str, context: Context) -> None:
    entries = [entry(rule, title, sql, context) for title, sql in STATEMENTS[rule].items()]
    path, text = GOLDEN / f"{rule}.sql", "\n".join(entries)
    if os.environ.get("SQLML_UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_an_unknown_rule_is_refused(context: Context) -> None:
    with pytest.raises(ConfigError, match="unknown rule 'nothing'; rules: metric_aggregates, "):
        apply_rules(read_statement("SELECT 1", None, context), last_rule="nothing")
