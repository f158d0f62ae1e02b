"""Catalog rows that nobody wrote through sqlml, and what may come of them.

`python -m tests.support.forged_rows FIRST END` prints the findings of these seeds. A forged row is
refused with an SqlmlError, or the model works. The database and the other models keep working.
"""

from __future__ import annotations

import json
import random
import sys
import traceback
from collections import Counter
from dataclasses import fields as fields_of
from typing import Any

import duckdb
import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import sqlml
from sqlml.bounded_cache import RecentCache
from sqlml.catalog.model import TrainingFacts
from sqlml.catalog.small_models import CascadeFacts, FilterFacts
from sqlml.errors import SqlmlError
from sqlml.importers.registry import import_model
from tests.support.cascaded import put_before, put_filter_before

TABLES = {
    "catalog_models": ("key", "name", "default_version", "last_version", "comment", "created_at"),
    "catalog_versions": (
        *("key", "version", "program", "features", "label_kind", "labels", "outputs", "bytes"),
        *("source", "library", "path", "format", "sha256", "options", "verification", "comment"),
    ),
    "catalog_programs": ("hash", "format", "content"),
    "catalog_aliases": ("key", "alias", "version"),
    "catalog_tags": ("key", "tag", "value"),
    "catalog_small_models": ("key", "version", "kind", "program", "facts"),
    "catalog_trainings": ("key", "version", "facts"),
    "catalog_calls": ("key", "kind", "macro", "function", "arguments", "result"),
    "catalog_choosers": ("kind", "prefix", "macro", "names", "by_digit"),
    "catalog_stale": ("key", "macro"),
}
TEXTS = (
    *(
        "",
        " ",
        "m",
        "M",
        "other",
        "last",
        "nobody",
        "a.b",
        "m/2",
        "m@x",
        "\x00",
        "é" * 300,
        "%",
        "*",
    ),
    *(
        "'; DROP TABLE t; --",
        'a"; DROP TABLE t; --',
        "x() AS 1; DROP TABLE t; --",
        "a\nb",
        "{}",
        "[]",
        "null",
        "1",
        "NaN",
        "\\",
    ),
    *(
        "sqlml_0123456789abcdef01234567_label_f64_native_traverse_cpu",
        "sqlml_open_a_session_first_any_double2_integer",
    ),
    *("DOUBLE[2]", "number", "any", "json", "PICKLE", "native", "x" * 100_000, "0" * 64, "label"),
)
KINDS = {
    ("catalog_programs", "format"): "format_number",
    ("catalog_small_models", "program"): "small_program",
    ("catalog_small_models", "kind"): "small_kind",
    ("catalog_trainings", "facts"): "training_facts",
}
"""Columns whose values are not those of others of that name."""

OPTIONS = (
    *("backend", "strategy", "device", "batch_size", "on_null", "on_missing_column"),
    *("positive_class", "output", "verify", "allow_pickle", "nope", "", "transform"),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        0,
        -1,
        1,
        2**40,
        1e300,
        "null",
        "auto",
        "cuda",
        "sql",
        "native",
        [],
        {},
        [1],
        "\0",
    ),
    *("'; DROP TABLE t; --", {"a": 1}, "yes", "x" * 1000),
)
ASKED = (
    "SELECT predict('m', *) FROM t",
    "SELECT predict('m@champion', *), predict_proba('m', *) FROM t",
    "SELECT predict('m/1', a, b) FROM t",
    "SELECT * FROM ml_predict(MODEL m, TABLE t)",
    "SHOW MODELS",
    "SHOW MODELS LIKE 'm%'",
    "SHOW VERSIONS IN MODEL m",
    "DESCRIBE MODEL m",
    "SHOW CREATE MODEL m",
    "EXPLAIN MODEL m",
    "EXPLAIN SELECT predict('m', *) FROM t",
    "SELECT * FROM sqlml.model_features",
    "SELECT predict('m/1', *, approximate := true) FROM t",
    "SELECT a FROM t ORDER BY predict_proba('m/1', *, class := 'yes', approximate := true) DESC "
    "LIMIT 2",
    "EXPLAIN SELECT predict('m/1', *, approximate := true) FROM t",
    "VERIFY MODEL m/1 USING (SELECT *, 'yes' AS y FROM t)",
    "SELECT predict('m/3', *) FROM t",
    "SELECT * FROM ml_evaluate(MODEL m/3), ml_training_info(MODEL m/3)",
    "SELECT * FROM ml_feature_info(MODEL m/3)",
    "SHOW CREATE MODEL m/3",
    "DESCRIBE MODEL m/3",
    "EXPLAIN MODEL m/3",
    "ALTER MODEL m/1 DROP CASCADE",
    "ALTER MODEL m/1 DROP TOP_K FILTER",
    "ALTER MODEL m SET OPTIONS (backend = 'native')",
    "ALTER MODEL m SET ALIAS x = 1",
    "ALTER MODEL m RENAME TO n",
    "DROP MODEL m",
)


def value_of(column: str, rng: random.Random) -> str:
    """A value for a column, as SQL."""
    text = rng.choice(TEXTS)
    if column in ("options", "verification") and rng.random() < 0.8:
        chosen = {rng.choice(OPTIONS): rng.choice(VALUES) for _ in range(rng.randrange(1, 4))}
        return quoted(json.dumps(chosen))
    if rng.random() < 0.1 and column not in ("key", "version"):
        return "NULL"
    if column in ("default_version", "last_version", "version", "bytes", "format_number"):
        return str(rng.choice((-1, 0, 1, 2, 3, 99, 2**31 - 1, -(2**31))))
    if column == "features":
        fields = [
            f"{{'name': {rng.choice(('NULL', quoted(rng.choice(TEXTS[:20])), quoted('a')))}, "
            f"'kind': {rng.choice(('NULL', quoted(rng.choice(TEXTS)), quoted('number')))}, "
            f"'used': {rng.choice(('NULL', 'true', 'false'))}}}"
            for _ in range(rng.randrange(0, 4))
        ]
        return f"[{', '.join(fields)}]::STRUCT(name VARCHAR, kind VARCHAR, used BOOLEAN)[]"
    if column in ("labels", "outputs", "arguments", "names"):
        texts = ", ".join(quoted(rng.choice(TEXTS)) for _ in range(rng.randrange(0, 4)))
        return f"[{texts}]::VARCHAR[]"
    if column == "facts":
        names = [f.name for f in (*fields_of(CascadeFacts), *fields_of(FilterFacts))]
        value = rng.choice((*VALUES, -0.5, 0.7, 1e-320, "m", [{"name": "a"}]))
        change = json.dumps({rng.choice(names): value})
        return rng.choice((f"json_merge_patch(facts, {quoted(change)})", quoted(text)))
    if column == "training_facts":
        value = rng.choice((*VALUES, -0.5, 1e-320, "m", [{"name": "a"}], [[1, 2]], {"a": "b"}))
        change = json.dumps({rng.choice([f.name for f in fields_of(TrainingFacts)]): value})
        return rng.choice((f"json_merge_patch(facts, {quoted(change)})", quoted(text)))
    if column == "small_program":
        return rng.choice(("(SELECT max(hash) FROM sqlml.catalog_programs)", quoted(text)))
    if column == "small_kind":
        return rng.choice(("'cascade'", "'top_k'", quoted(text)))
    if column == "created_at":
        return rng.choice(("'infinity'::TIMESTAMP", "'0001-01-01'::TIMESTAMP", "now()::TIMESTAMP"))
    if column == "content":
        cut = rng.randrange(0, 600)
        return rng.choice(
            (
                "''::BLOB",
                f"content[1:{cut}]",
                f"content || content[1:{cut}]",
                f"content[1:{cut}] || '\\x00\\xff'::BLOB || content[{cut + 3}:]",
            )
        )
    return quoted(text)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''").replace("\0", "") + "'"


class Shop:
    """A database of two models, one of which gets forged rows inside a transaction."""

    def __init__(self) -> None:
        x = np.random.default_rng(0).normal(size=(60, 2))
        y = np.where(x[:, 0] > 0, "yes", "no")
        self.con = sqlml.connect()
        self.con.execute("CREATE TABLE t AS SELECT 0.5 AS a, -1.5 AS b FROM range(3)")
        for name in ("m", "other"):
            self.con.create_model(name, LogisticRegression().fit(x, y), inputs=["a", "b"])
            tree = DecisionTreeClassifier(max_depth=4).fit(x, y)
            self.con.add_version(name, tree, inputs=["a", "b"], on_null="null")
        self.con.execute("ALTER MODEL m SET ALIAS champion = 2; ALTER MODEL m SET TAG team = 'x'")
        small = import_model(LogisticRegression().fit(x[:, :1], y == "yes"), ["a"]).program
        put_before(self.con, "m/1", small)
        number = import_model(LinearRegression().fit(x[:, :1], x[:, 0]), ["a"]).program
        put_filter_before(self.con, "m/1", number, chosen="'yes'")
        self.con.execute(
            "ALTER MODEL m ADD VERSION TRANSFORM (a, b + 1 AS c) OPTIONS (model_type = "
            "'linear_reg', label = 'y') AS SELECT range AS a, range % 7 AS b, range AS y "
            "FROM range(50)"
        )
        self.outcomes: Counter[str] = Counter()
        self.want = self.con.execute("SELECT predict('other', *) FROM t").fetchall()

    def finding(self, seed: int) -> str | None:
        """What should not come of a forged row; None: nothing did."""
        rng = random.Random(seed)
        table = rng.choice(list(TABLES))
        column = rng.choice(TABLES[table])
        kind = KINDS.get((table, column), column)
        change = f"UPDATE sqlml.{table} SET {column} = {value_of(kind, rng)}"
        if table == "catalog_stale":  # empty, but while macros wait to be made anew
            macro = value_of("macro", rng) if column == "macro" else "NULL"
            change = f"INSERT INTO sqlml.{table} VALUES ({value_of('key', rng)}, {macro})"
        elif table not in ("catalog_programs", "catalog_choosers"):
            change += " WHERE key = 'm'"
            change += rng.choice(("", " AND version = 1")) if table == "catalog_versions" else ""
        asked = rng.choice(ASKED)
        plain = self.con.connection
        plain.execute("BEGIN")
        try:
            try:
                plain.execute(change)
                plain.execute(f"CREATE OR REPLACE TYPE sqlml.stamp_m AS ENUM ('f{seed}')")
            except duckdb.Error:
                self.outcomes["no such row"] += 1
                return None  # the table itself refuses it
            session = sqlml.attach(plain.cursor()) if rng.random() < 0.02 else self.con
            session._services.lookup.clear()  # nothing is known from before
            session._models.catalog.programs._cache = RecentCache()
            try:
                session.execute(asked).fetchall()
                self.outcomes["answered"] += 1
            except SqlmlError:
                self.outcomes["refused"] += 1
            except Exception:
                return f"{seed}: {change[:300]}\n{asked}\n{traceback.format_exc()[-1500:]}"
            if not self._has_its_table(plain):
                return f"{seed}: {change[:300]}\n{asked}\nran SQL out of a row"
        finally:
            plain.rollback()
        return None

    def _has_its_table(self, plain: duckdb.DuckDBPyConnection) -> bool:
        """Whether the table is there that texts of forged rows would drop, were they run."""
        try:
            plain.sql("FROM t")
        except duckdb.TransactionException:
            return True  # the transaction failed: nothing of it stays
        except duckdb.CatalogException:
            return False
        return True


def findings(first: int, end: int) -> list[str]:
    """What should not come of the forged rows of so many seeds."""
    shop, found = Shop(), []
    for seed in range(first, end):
        try:
            one = shop.finding(seed)
        except Exception:
            one = f"{seed}: {traceback.format_exc()[-1500:]}"
            shop = Shop()
        if one is not None:
            found.append(one)
        if seed % 100 == 0:
            got = shop.con.execute("SELECT predict('other', *) FROM t").fetchall()
            if got != shop.want:
                found.append(f"{seed}: the other model answers {got}")
    assert min(shop.outcomes[kind] for kind in ("answered", "refused")) > (end - first) / 50
    return found


if __name__ == "__main__":
    for finding in findings(int(sys.argv[1]), int(sys.argv[2])):
        print(finding, end="\n\n")
