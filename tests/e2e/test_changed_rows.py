"""Calls where statements choose the rows that they change: by predictions known before, too.

DuckDB ends with an internal error where ON CONFLICT .. WHERE or MERGE .. AND holds a query, so what
a call becomes there must be an expression, whatever its arguments are.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sqlml

pytestmark = pytest.mark.version

MODELS = {
    "line": LogisticRegression(),
    "scaled": make_pipeline(StandardScaler(), LogisticRegression()),
    "tree": DecisionTreeClassifier(max_depth=3, random_state=0),
    "forest": RandomForestClassifier(5, max_depth=4, random_state=0),
}
ARGUMENTS = (
    "a := {0}.a, b := {0}.b",
    "a := {0}.a + 1, b := {0}.b",
    "a := coalesce({0}.a, 0.5), b := abs({0}.b)",
    "{0}.b, CASE WHEN {0}.id % 2 = 0 THEN {0}.a ELSE {0}.b END",
)
ASKED = (
    "predict('{model}', {arguments}) = 'yes'",
    "predict_proba('{model}', {arguments}, class := 'yes') > 0.6",
    "predict_proba('{model}', {arguments})['no'] > 0.6",
    "predict_score('{model}', {arguments}) > 0.1",
)
STATEMENTS = (
    "INSERT INTO d BY NAME FROM s ON CONFLICT (id) DO UPDATE SET w = 1 WHERE [excluded]",
    "INSERT INTO d BY NAME FROM s ON CONFLICT (id) DO UPDATE SET w = 1 "
    "WHERE excluded.id > 5 AND NOT [excluded]",
    "INSERT INTO d BY NAME FROM s ON CONFLICT (id) DO UPDATE SET "
    "w = CASE WHEN [excluded] THEN 2 ELSE 3 END WHERE [excluded] IS NOT NULL",
    "INSERT INTO d BY NAME FROM s ON CONFLICT (id) DO UPDATE SET w = 1 WHERE [d] AND [excluded]",
    "MERGE INTO d USING s ON d.id = s.id WHEN MATCHED AND [s] THEN UPDATE SET w = 1",
    "MERGE INTO d USING s ON d.id = s.id WHEN MATCHED AND [d] AND NOT [s] THEN DELETE "
    "WHEN MATCHED AND [s] THEN UPDATE SET w = 2 WHEN MATCHED THEN DO NOTHING "
    "WHEN NOT MATCHED AND [s] THEN INSERT BY NAME",
    "MERGE INTO d USING s ON d.id = s.id WHEN MATCHED THEN UPDATE SET w = [d] "
    "WHEN NOT MATCHED THEN INSERT BY NAME",
    "MERGE INTO d USING s ON d.id = s.id AND d.id <> 3 WHEN MATCHED AND [s] "
    "THEN UPDATE SET w = [s] WHEN MATCHED THEN UPDATE SET w = [d] "
    "WHEN NOT MATCHED BY SOURCE AND d.id > 2 THEN UPDATE SET w = 5 - [d]::INTEGER "
    "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    "MERGE INTO d USING s USING (id) WHEN MATCHED THEN UPDATE SET w = [d] "
    "WHEN NOT MATCHED AND [s] THEN INSERT (id, w) VALUES (s.id, [s])",
    "UPDATE d SET w = 1 FROM s WHERE d.id = s.id AND [s] AND [d]",
    "DELETE FROM d USING s WHERE d.id = s.id AND ([s] OR [d])",
)


@pytest.fixture(scope="module")
def con() -> Iterator[sqlml.Session]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    labels = np.where(x.sum(axis=1) > 0, "yes", "no")
    with sqlml.connect() as con:
        for name, model in MODELS.items():
            model.fit(x, labels)
            for on_null in ("error", "null"):
                con.create_model(
                    f"{name} {on_null}", model, inputs=["a", "b"], on_null=on_null, verify=False
                )
        con.execute(
            "CREATE TABLE r AS SELECT i AS id, sin(i) AS a, cos(3 * i) AS b FROM range(40) g(i)"
        )
        con.execute("CREATE TABLE n AS SELECT id, CASE WHEN id % 3 > 0 THEN a END AS a, b FROM r")
        yield con


def changed(con: sqlml.Session, rows: str, statement: str, asked: str) -> list[tuple[object, ...]]:
    """Rows of `d` after a statement; `asked` is also known in a column of `d` and `s`."""
    known = f"SELECT *, {asked.format('r')} AS known, 0 AS w FROM {rows} r"
    con.execute(
        "CREATE OR REPLACE TABLE d "
        "(id BIGINT PRIMARY KEY, a DOUBLE, b DOUBLE, known BOOLEAN, w INTEGER)"
    )
    con.execute(f"INSERT INTO d {known} WHERE id < 20")
    con.execute(
        "CREATE OR REPLACE TABLE s AS SELECT * REPLACE (id - 10 AS id) "
        f"FROM ({known}) WHERE id >= 18"
    )
    con.execute(statement)
    return con.execute("FROM d ORDER BY id").fetchall()


CASES = [
    (model, asked, on_null)
    for model in MODELS
    for asked in ASKED
    if "score" not in asked or model in ("line", "scaled")
    for on_null in ("error", "null")
]


@pytest.mark.by_day(30)
@pytest.mark.parametrize(("model", "asked", "on_null"), CASES)
def test_as_by_predictions_known_before(
    model: str, asked: str, on_null: str, con: sqlml.Session
) -> None:
    for k, arguments in enumerate(ARGUMENTS):
        call = asked.format(model=f"{model} {on_null}", arguments=arguments)
        takes_null = on_null == "null" or "coalesce" in arguments
        for statement in STATEMENTS[k % 2 :: 2]:
            written = by_column = statement
            for table in ("excluded", "d", "s"):
                written = written.replace(f"[{table}]", f"({call.format(table)})")
                by_column = by_column.replace(f"[{table}]", f"{table}.known")
            rows = "n" if takes_null else "r"
            want = changed(con, rows, by_column, call)
            assert changed(con, rows, written, call) == want, written
