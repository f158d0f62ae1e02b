"""A grammar of DuckDB's statements, none of which calls a model.

A rule's texts are its choices; ``{rule}`` in one of them is a choice of that rule. Words that mean
something to sqlml stand wherever DuckDB takes any word. FOLDER is a folder for files.
"""

# ruff: noqa: E501 (templates, one a line)

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.generated.dice import Dice

TABLES = """
CREATE TABLE t (a INTEGER, b VARCHAR, c DOUBLE DEFAULT 1.5);
INSERT INTO t VALUES (1, 'import', 0.5), (2, 'attached', NULL), (NULL, 'model', 2), (3, 'predict(', -1);
CREATE TABLE models (id INTEGER PRIMARY KEY, model VARCHAR);
INSERT INTO models VALUES (1, 'm'), (2, 'predict'), (3, NULL);
CREATE TABLE imports (model INTEGER, predict INTEGER CHECK (predict < 100), "create model" VARCHAR);
INSERT INTO imports VALUES (1, 10, 'x'), (2, 20, 'attach'), (2, 30, '-- import');
CREATE VIEW attached AS SELECT a, b AS import FROM t WHERE a IS NOT NULL;
CREATE SEQUENCE attach_id START 5;
CREATE TYPE model_kind AS ENUM ('import', 'attach', 'predict');
CREATE MACRO imported(x) AS x + 1;
"""

GRAMMAR: Mapping[str, tuple[str, ...]] = {
    "text": (
        "{query}", "{query}", "{query}", "{query}", "{change}", "{change}", "{definition}", "{definition}",
        "{transaction}", "{setting}", "{told}", "{database}", "{file}", "{preparation}",
        "{query}; {query}", "{change}; {query}", "{definition}; {query}", "{query};", "  {query}  ",
        "/* {words} */ {query}", "-- {words}\n{change}", "{query} -- {words}", "{wrong}", "{wrong}",
    ),
    "words": ("attach", "import database", "create model m from 'f'", "predict('m', *)", "drop model m; show models", "'", "transform("),
    "name": ("t", "t", "t", "models", "models", "imports", "imports", "attached", "n1", "n2", "model", '"attach"', '"import export"', "predict", "main.t", "nowhere"),
    "new": ("n1", "n2", "model", "predict", "transform", "attachment", '"attach"', '"import export"', '"create model"', "imports", "MODELS"),
    "alias": ("x", "model", "predict", "attach", "import", '"predict(1)"', '"drop model m"', "models"),
    "col": ("a", "b", "*", "count(*)", "model", "predict", "1", "{value}", "{value} AS {alias}", "{expr} AS {alias}", "{expr}"),
    "cols": ("*", "*", "{col}", "{col}, {col}", "{value} AS {alias}, {expr}", "{expr}, {expr} AS {alias}"),
    "number": ("0", "1", "2", "42", "-1", "1.5", "1e3", "NULL", "9999999999"),
    "string": ("'import'", "'attach'", "'important'", "'it''s a model'", "'predict(''m'', *)'", "$$ATTACH 'x' AS y$$", "'create model m'", "''", "E'attach\\n'"),
    "value": ("{number}", "{number}", "{string}", "{string}", "[{number}, {number}]", "{'import': {number}}", "DATE '2024-02-29'", "true", "MAP {'attach': 1}", "INTERVAL 3 DAY", "'x'::model_kind", "'attach'::model_kind", "NULL::VARCHAR", "1::DECIMAL(9, 2)", "'\\xAA'::BLOB"),
    "expr": (
        "{value}", "{number} + {number}", "upper({string})", "coalesce(NULL, {value})", "CASE WHEN {number} > 1 THEN {string} ELSE {string} END",
        "typeof({value})", "length({string})", "{string} LIKE '%attach%'", "list_transform([1, 2], lambda model: model + 1)", "[attach * 2 FOR attach IN [1, 2]]",
        "imported({number})", "nextval('attach_id')", "currval('attach_id')", "current_schema()", "current_database()", "current_query()",
        "current_setting('memory_limit') IS NULL", "getvariable('model')", "TRY({number} / 0)", "1 / 0", "{string}::INTEGER", "(SELECT max(a) FROM t)", "error({string})",
        "struct_pack(model := {number}).model", "regexp_replace({string}, 'import', 'export')", "sum({number}) OVER ()", "in_search_path('memory', 'main')",
        "exists(FROM {name})", "abs({number})", "{string} || {string}", "json_extract('{\"attach\": 1}', '$.attach')", "hash({string}) > 0",
    ),
    "where": ("", "", " WHERE a > 1", " WHERE {expr} IS NOT NULL", " WHERE model = {number}", " WHERE b LIKE '%import%'", " WHERE a IN (FROM range(3))", " WHERE false"),
    "end": ("", "", "", " ORDER BY ALL", " ORDER BY 1 DESC", " LIMIT 2", " ORDER BY ALL LIMIT 1 OFFSET 1"),
    "query": (
        "SELECT {cols} FROM {name}{where}{end}", "SELECT {cols} FROM {name}{where}{end}", "SELECT {cols} FROM t{where}{end}", "SELECT {cols} FROM imports{where}{end}",
        "SELECT {expr} AS {alias}", "SELECT {expr} AS {alias}, {value}", "SELECT {expr}", "FROM {name}", "FROM {name} {alias} SELECT {cols}",
        "SELECT {string} AS {alias}", "SELECT 1 AS {alias}", "VALUES ({value}, {string}), (NULL, NULL)", "TABLE {name}",
        "SELECT * FROM t x JOIN imports y ON x.a = y.model{end}", "SELECT * FROM t LEFT JOIN models ON a = id{end}", "SELECT * FROM t NATURAL JOIN attached{end}",
        "SELECT b, count(*) AS model FROM t GROUP BY b HAVING count(*) > 0{end}", "SELECT model, sum(predict) FROM imports GROUP BY ROLLUP (model) ORDER BY ALL",
        "WITH import AS (SELECT {expr} AS model) SELECT * FROM import", "WITH RECURSIVE attach(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM attach WHERE n < 4) FROM attach",
        "SELECT a FROM t UNION ALL SELECT id FROM models{end}", "SELECT {value} EXCEPT SELECT {value}", "PIVOT imports ON model USING sum(predict)", "UNPIVOT models ON id INTO NAME model VALUE attach",
        "SELECT DISTINCT b FROM t{end}", "SELECT a, row_number() OVER (ORDER BY b) AS import FROM t QUALIFY import < 3", "SELECT unnest([1, 2]) AS predict", "SELECT * FROM range(5) r(attach)",
        "SELECT * FROM query('SELECT {number} AS import')", "SELECT (SELECT {expr}) AS {alias} FROM t", "SELECT COLUMNS('^[ab]$') FROM t{end}", "SELECT * EXCLUDE (b) FROM t", "FROM t SELECT max(a), min(b){where}",
        "SELECT * REPLACE (a + 1 AS a) FROM t{end}", "SELECT t.a, y.* FROM t, LATERAL (SELECT t.a + 1 AS attach) y", "SELECT a FROM t ASOF JOIN models ON a >= id", "FROM t |> SELECT a",
        "SELECT * FROM attached TABLESAMPLE 100%", "SELECT ? AS {alias}, {string}", "SELECT $1::INTEGER + 1 AS {alias}", "SELECT a FROM t WHERE a > ? OR b = 'import'",
    ),
    "change": (
        "INSERT INTO t VALUES ({number}, {string}, {number})", "INSERT INTO t (b) VALUES ({string})", "INSERT INTO t (a) SELECT id FROM models RETURNING *", "INSERT INTO t BY NAME SELECT 'attach' AS b",
        "INSERT INTO models VALUES ({number}, {string})", "INSERT INTO models VALUES (1, {string}) ON CONFLICT DO NOTHING", "INSERT OR REPLACE INTO models VALUES (2, {string}) RETURNING model",
        "INSERT INTO models VALUES (3, {string}) ON CONFLICT (id) DO UPDATE SET model = excluded.model", "INSERT INTO imports VALUES ({number}, {number}, {string})", "INSERT INTO {name} DEFAULT VALUES",
        "UPDATE t SET b = {string}{where}", "UPDATE imports SET predict = {number} WHERE model = 2 RETURNING predict", "UPDATE t SET a = id FROM models WHERE t.b = models.model", "UPDATE {name} SET a = {number}",
        "DELETE FROM t{where}", "DELETE FROM models WHERE id = {number} RETURNING id", "DELETE FROM t USING models WHERE id = a", "DELETE FROM {name}", "TRUNCATE {name}", "TRUNCATE imports",
        "MERGE INTO models USING t ON a = id WHEN MATCHED THEN UPDATE SET model = b WHEN NOT MATCHED AND a IS NOT NULL THEN INSERT VALUES (a, b)", "MERGE INTO models m USING imports i ON m.id = i.model WHEN MATCHED THEN DELETE",
        "INSERT INTO t (a, b) VALUES (?, 'import')", "UPDATE t SET b = ? WHERE a = 1", "WITH import AS (SELECT 7 AS n) INSERT INTO t (a) SELECT n FROM import",
    ),
    "definition": (
        "CREATE TABLE {new} (a INTEGER, model VARCHAR DEFAULT {string})", "CREATE TABLE IF NOT EXISTS {new} AS {query}", "CREATE OR REPLACE TABLE {new} AS SELECT {number} AS a, {string} AS b", "CREATE TEMP TABLE {new} (import INTEGER)",
        "CREATE TABLE {new} (attach INTEGER PRIMARY KEY, g INTEGER GENERATED ALWAYS AS (attach * 2), CHECK (attach > 0))", "DROP TABLE {name}", "DROP TABLE IF EXISTS {new}", "ALTER TABLE {name} ADD COLUMN import INTEGER DEFAULT {number}",
        "ALTER TABLE {name} RENAME TO {new}", "ALTER TABLE t RENAME COLUMN c TO model", "ALTER TABLE t ALTER a TYPE BIGINT", "ALTER TABLE {name} DROP COLUMN import", "ALTER TABLE t ALTER b SET DEFAULT 'attach'", "ALTER TABLE t ALTER b SET NOT NULL",
        "CREATE VIEW {new} AS {query}", "CREATE OR REPLACE VIEW {new} AS SELECT a AS attach FROM t", "CREATE TEMP VIEW {new} AS FROM imports", "DROP VIEW {name}", "DROP VIEW IF EXISTS {new} CASCADE",
        "CREATE MACRO {new}(x) AS x || {string}", "CREATE OR REPLACE MACRO import_{number}(model) AS model", "CREATE FUNCTION attach_all(x, y := 2) AS TABLE SELECT x AS import, y AS predict", "FROM attach_all({number})", "DROP MACRO IF EXISTS {new}",
        "CREATE SEQUENCE {new} START 3", "DROP SEQUENCE IF EXISTS {new}", "CREATE TYPE {new} AS ENUM ('attach', 'import')", "CREATE TYPE {new} AS STRUCT(model INTEGER)", "DROP TYPE IF EXISTS {new}",
        "CREATE SCHEMA {new}", "CREATE SCHEMA IF NOT EXISTS model", "CREATE TABLE IF NOT EXISTS model.import AS SELECT 1 AS attach", "FROM model.import", "DROP SCHEMA IF EXISTS {new} CASCADE", "CREATE INDEX {new} ON t (a)", "CREATE UNIQUE INDEX {new} ON imports (model)", "DROP INDEX IF EXISTS {new}",
        "COMMENT ON TABLE t IS {string}", "COMMENT ON COLUMN t.a IS 'import'", "COMMENT ON VIEW attached IS {string}", "CREATE TABLE {new} AS FROM t WITH NO DATA",
    ),
    "transaction": ("BEGIN", "BEGIN", "BEGIN TRANSACTION", "START TRANSACTION", "COMMIT", "COMMIT", "ROLLBACK", "END", "ABORT", "BEGIN; {change}; COMMIT", "BEGIN; {change}; ROLLBACK", "BEGIN READ ONLY"),
    "setting": (
        "SET VARIABLE model = {value}", "RESET VARIABLE model", "SET default_order = 'DESC'", "RESET default_order", "SET default_null_order = 'nulls_first'", "RESET default_null_order",
        "SET errors_as_json = true", "RESET errors_as_json", "SET search_path = 'main'", "SET schema = 'model'", "SET schema = 'main'", "SET nowhere = 1", "SET threads = 1", "SET SESSION enable_progress_bar = false",
        "PRAGMA enable_verification", "PRAGMA disable_verification", "PRAGMA table_info('t')", "PRAGMA show_tables", "PRAGMA nonsense", "PRAGMA storage_info('models')", "PRAGMA table_info('imports')",
        "SET memory_limit = '2GB'", "SET integer_division = true", "RESET integer_division", "SET null_order = 'attach'", "PRAGMA enable_profiling = 'no_output'", "PRAGMA disable_profiling", "CALL pragma_version()",
        "SET order_by_non_integer_literal = true", "SET lock_configuration = false", "SET GLOBAL default_collation = 'nocase'", "RESET GLOBAL default_collation", "SET TIME ZONE 'UTC'", "SET scalar_subquery_error_on_multiple_rows = false",
    ),
    "told": (
        "EXPLAIN {query}", "EXPLAIN {change}", "EXPLAIN (FORMAT json) SELECT a FROM t", "SUMMARIZE {name}", "SUMMARIZE SELECT a AS import FROM t", "DESCRIBE {name}", "DESCRIBE {query}", "DESCRIBE", "SHOW TABLES", "SHOW ALL TABLES", "SHOW t", "SHOW \"models\"", "SHOW imports",
        "SHOW TABLES FROM main", "SELECT table_name, column_count FROM duckdb_tables() ORDER BY ALL", "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal", "SELECT sequence_name, last_value FROM duckdb_sequences()", "SELECT count(*) > 0 FROM duckdb_settings()",
        "SELECT name, value FROM duckdb_settings() WHERE name LIKE 'default%' ORDER BY ALL", "SELECT database_name FROM duckdb_databases() ORDER BY 1", "SELECT table_name FROM information_schema.tables ORDER BY 1", "SELECT * FROM duckdb_variables()",
        "SELECT function_name, macro_definition FROM duckdb_functions() WHERE schema_name = 'main' AND NOT internal AND function_type = 'macro' ORDER BY ALL", "EXPLAIN ANALYZE SELECT 1 AS import", "CHECKPOINT", "FORCE CHECKPOINT", "VACUUM", "VACUUM t", "ANALYZE", "ANALYZE t",
        "SELECT index_name FROM duckdb_indexes() ORDER BY 1", "SELECT type_name FROM duckdb_types() WHERE NOT internal ORDER BY 1", "SELECT name, parameter_types FROM duckdb_prepared_statements() ORDER BY 1", "SELECT schema_name FROM duckdb_schemas() ORDER BY ALL",
    ),
    "database": (
        "ATTACH ':memory:' AS {other}", "ATTACH ':memory:' AS {other}", "ATTACH IF NOT EXISTS ':memory:' AS other", "ATTACH 'FOLDER/more.duckdb' AS {other}", "ATTACH DATABASE 'FOLDER/more.duckdb' (READ_ONLY)", "ATTACH 'FOLDER/nowhere/x.duckdb'", "DETACH {other}", "DETACH DATABASE IF EXISTS {other}",
        "USE {other}", "USE untouched", "USE untouched.main", "CREATE TABLE {other}.t (attach INTEGER)", "INSERT INTO {other}.t VALUES ({number})", "FROM {other}.t", "COPY FROM DATABASE untouched TO {other}", "CREATE VIEW {other}.v AS SELECT 1 AS import", "FROM {other}.v",
        "EXPORT DATABASE 'FOLDER/dump'", "EXPORT DATABASE 'FOLDER/dump' (FORMAT parquet)", "IMPORT DATABASE 'FOLDER/dump'", "IMPORT DATABASE 'FOLDER/nowhere'", "ATTACH ':memory:' AS {other}; USE {other}", "SHOW DATABASES",
    ),
    "other": ("other", "other", '"import"', "model", "attachment"),
    "file": (
        "COPY t TO 'FOLDER/import.csv' (HEADER)", "COPY (SELECT a AS model, b FROM t) TO 'FOLDER/attach.parquet'", "COPY ({query}) TO 'FOLDER/model.json'", "COPY t FROM 'FOLDER/import.csv'", "COPY t (a, b, c) FROM 'FOLDER/import.csv' (HEADER)", "FROM 'FOLDER/import.csv'",
        "SELECT count(*) FROM 'FOLDER/attach.parquet'", "SELECT * FROM read_csv('FOLDER/import.csv')", "SELECT * FROM read_json('FOLDER/model.json')", "COPY t TO 'FOLDER/nowhere/x.csv'", "FROM 'FOLDER/models.csv'", "SELECT * FROM read_csv('FOLDER/attach*.csv')",
    ),
    "preparation": (
        "PREPARE {prepared} AS {query}", "PREPARE {prepared} AS SELECT a + ? AS import FROM t", "PREPARE {prepared} AS INSERT INTO t (a) VALUES ($1)", "EXECUTE {prepared}", "EXECUTE {prepared}({value})", "EXECUTE {prepared}({value})", "DEALLOCATE {prepared}", "EXECUTE {prepared}(attach := 1)",
    ),
    "prepared": ("p", "model", "attach", "import"),
    "wrong": (
        "SELEC {value}", "SELECT FROM", "SELECT nowhere FROM t", "SELECT 'import", "SELECT 1 AS attach, FROM", "CREATE TABLE", "ATTACH", "IMPORT", "IMPORT DATABASE", "DETACH nowhere", "SELECT predict FROM models", "DROP TABLE model_nowhere", "INSERT INTO t VALUES (1)", "SELECT 1 +",
        "SELECT * FROM nowhere_attach", "FROM sql", "SELECT {string}::INTEGER", "SELECT a, count(*) FROM t", "EXECUTE nothing_to_import", "SELECT imported(1, 2)", "SELECT no_function_attach(1)", "", ";", "/* import */", "-- attach", "SELECT 1; SELECT nowhere; SELECT 2", "SELEC 1; SELECT {string}", "COMMIT; COMMIT",
    ),
}  # fmt: skip

_SLOT = re.compile(r"\{([a-z]+)\}")


def text(dice: Dice) -> str:
    """A text for `execute`: one statement, several, or something that is none."""
    made = "{text}"
    while slot := _SLOT.search(made):
        made = made[: slot.start()] + dice.pick(GRAMMAR[slot[1]]) + made[slot.end() :]
    return made
