-- Statements without a model call: each goes to DuckDB as it is. Lines of dashes stand between
-- them, and one with a title begins a group, which has a new database. "-- fails" above a statement
-- says that DuckDB refuses it, "-- known: why" that sqlml does something else on purpose. All
-- other text between two lines of dashes is the statement, blanks and comments included; {folder}
-- is a folder for files.

-------------------------------- scalars and literals
SELECT 1
--------------------------------
SELECT 1;
--------------------------------
   SELECT	1   ;   
--------------------------------
select 42 as "Answer", 'x' as "WITH Spaces", 3 as "ünï"
--------------------------------
SELECT 1_000_000, 0xFF, 0b101, 0o17, .5, 1e3, 1.50, 1e-3::DECIMAL(5, 3)
--------------------------------
SELECT E'a\tb\nc\'d\\', e'\u00e9', 'it''s', '\n'
--------------------------------
SELECT $$a 'quoted' "text"$$, $tag$ $$ $tag$, $$predict('m', *)$$
--------------------------------
SELECT '日本語', 'naïve', '🦆', 'a' || chr(128512), length('🦆é'), 'é' = 'é'
--------------------------------
SELECT 170141183460469231731687303715884105727::HUGEINT, 340282366920938463463374607431768211455::UHUGEINT, 18446744073709551615::UBIGINT
--------------------------------
SELECT 12345678901234567890123456789012345678901234567890::BIGNUM
--------------------------------
SELECT '101010'::BIT, bit_count('1101'::BIT), '\xAA\x00B'::BLOB, 'ab'::BLOB, from_hex('00FF')
--------------------------------
SELECT TIMESTAMP '2024-02-29 12:34:56.789', DATE '0044-03-15 (BC)', TIME '23:59:59.999999', TIMESTAMP_NS '2020-01-01 00:00:00.000000001'
--------------------------------
SELECT INTERVAL 1 YEAR, INTERVAL '3 months 2 days', INTERVAL (1 + 1) HOUR, to_days(3), DATE '2024-01-31' + INTERVAL 1 MONTH
--------------------------------
SELECT TIMESTAMPTZ '2024-01-01 00:00:00+02'::VARCHAR, '12:00:00+01'::TIMETZ::VARCHAR
--------------------------------
SELECT 'infinity'::DATE::VARCHAR, 'nan'::DOUBLE, '-inf'::FLOAT, 1 / 0, -0.0, 0.1 + 0.2, 5 // 2, 5 % 3, 2 ** 10, 5!
--------------------------------
SELECT uuid '00000000-0000-0000-0000-000000000001', 'c8e36a7c-2b0c-4c40-9c0f-6a8b1f6c4d33'::UUID
--------------------------------
SELECT NULL, NULL::INTEGER, TRUE, FALSE, NULL IS NULL, 1 IS DISTINCT FROM NULL
--------------------------------
SELECT [1, 2, 3], [], [NULL], {'a': 1, 'b': 'x'}, MAP {'k': 1, 'l': 2}, (1, 'a'), row(1, 2)
--------------------------------
SELECT array_value(1, 2, 3), [1, 2, 3]::INTEGER[3], array_distance([1.0, 2.0]::FLOAT[2], [2.0, 4.0]::FLOAT[2])
--------------------------------
SELECT union_value(num := 2), 'x'::UNION(num INTEGER, str VARCHAR), union_tag(union_value(k := 1))
--------------------------------
SELECT 'happy'::ENUM('sad', 'happy'), enum_range(NULL::ENUM('a', 'b'))
--------------------------------
SELECT [x * 2 FOR x IN [1, 2, 3] IF x > 1], [y for y in range(3)]
--------------------------------
SELECT list_transform([1, 2, 3], lambda x: x + 1), list_filter([1, 2, 3], lambda x, i: i > 1), list_reduce([1, 2, 3], lambda a, b: a + b)
--------------------------------
-- fails
SELECT list_transform([1, 2, 3], x -> x + 1)
--------------------------------
SET lambda_syntax = 'ENABLE_SINGLE_ARROW'
--------------------------------
SELECT list_transform([1, 2, 3], x -> x + 1), list_filter([1, 2], (x, i) -> i > 1)
--------------------------------
RESET lambda_syntax
--------------------------------
SELECT '{"a": [1, 2, {"b": null}]}'::JSON -> 'a' -> 2, '{"a": 1}'::JSON ->> '$.a', json_extract('{"x": {"y": 5}}', '$.x.y'), json_object('k', 1)
--------------------------------
SELECT json_serialize_sql('SELECT predict(1, 2) FROM t')
--------------------------------
SELECT CASE WHEN 1 > 2 THEN 'a' ELSE 'b' END, CASE 3 WHEN 3 THEN 'three' END, if(true, 1, 2), coalesce(NULL, 2), nullif(1, 1)
--------------------------------
SELECT TRY(1 / 0), TRY('no'::INTEGER), TRY_CAST('x' AS INTEGER), CAST('12' AS TINYINT)
--------------------------------
SELECT 'abc'[2], 'abcdef'[2:4], [10, 20, 30][-1], [1, 2, 3, 4, 5][1:5:2], {'a': {'b': 7}}.a.b
--------------------------------
SELECT 'hello'.upper(), 'a,b'.split(',').list_reverse(), ('x').concat('y').length()
--------------------------------
SELECT 'abc' LIKE 'a%', 'abc' ILIKE 'A_C', 'abc' SIMILAR TO 'a.c', 'abc' GLOB 'a*', 'abc' ~ 'a.c', 'a%' LIKE 'a$%' ESCAPE '$', 'a' NOT IN ('b', 'c')
--------------------------------
SELECT regexp_replace('model explain predict', '(\w+) (\w+)', '\2 \1'), regexp_extract_all('a1b2', '[0-9]')
--------------------------------
SELECT 1 BETWEEN 0 AND 2, NOT true AND false OR true, 3 & 5, 3 | 5, xor(3, 5), ~3, 1 << 3, -7 >> 1, @ -5
--------------------------------
SELECT extract(year FROM DATE '2024-05-06'), date_trunc('month', DATE '2024-05-06'), date_part('dow', DATE '2024-05-06'), strftime(DATE '2024-05-06', '%d/%m/%Y'), age(DATE '2024-05-06', DATE '2020-01-01')
--------------------------------
SELECT position('b' IN 'abc'), substring('abcdef' FROM 2 FOR 3), trim(BOTH 'x' FROM 'xax'), overlay('abcdef' PLACING 'ZZ' FROM 2 FOR 3)
--------------------------------
SELECT current_query()
--------------------------------
SELECT   current_query()   /* spaces  and "quotes" and 'strings' */ , 1 AS x -- and the end
--------------------------------
SELECT current_query() AS predict, 'predict(''churn'', *)' AS text, 'CREATE MODEL m FROM ''f''' AS "create model"
--------------------------------
SELECT current_query() AS "🦆", 'é' /* transform( ünï */
--------------------------------
SELECT
	current_query()	AS	tabs
,
	1
--------------------------------
SELECT current_query(), $$ drop model churn $$ -- show models
--------------------------------
SELECT typeof(1), typeof(1.5), typeof('x'), typeof([1]), typeof({'a': 1}), typeof(NULL), pg_typeof(1)
--------------------------------
SELECT current_schema(), current_database(), current_catalog(), current_setting('threads') > 0
--------------------------------
SELECT setseed(0.5)
--------------------------------
SELECT round(random(), 12), round(random(), 12)
--------------------------------
SELECT hash('x') = hash('x'), md5('x'), sha256('x'), format('{}-{:05.1f}', 'a', 2.5), printf('%03d', 7)
--------------------------------
SELECT greatest(1, 2), least('a', 'b'), generate_series(1, 3), range(3), list_sort([3, 1, 2], 'DESC'), flatten([[1], [2]])
--------------------------------
SELECT 1 AS a, a + 1 AS b, b * 2 AS c
--------------------------------
SELECT a: 1, b: 'two'
--------------------------------
SELECT (SELECT 5), EXISTS (SELECT 1 WHERE false), 3 = ANY (SELECT 3), 3 > ALL (SELECT unnest([1, 2]))
--------------------------------
SELECT 1 WHERE 1 = 0
--------------------------------
SELECT unnest([1, 2, 3]) AS u, unnest({'a': 1, 'b': 2})
--------------------------------
SELECT unnest([{'a': 1, 'b': [2, 3]}], recursive := true)
--------------------------------
VALUES (1, 'a'), (2, 'b')
--------------------------------
SELECT * FROM (VALUES (1, 'a'), (2, NULL)) AS v(n, s) ORDER BY n DESC NULLS LAST
--------------------------------
-- fails
SELECT 'a' 'b'
--------------------------------
SELECT 'a'
'b'
--------------------------------
SELECT CAST([1, 2] AS VARCHAR), '[1, 2]'::INTEGER[], '{''a'': 3}'::STRUCT(a INTEGER), {'a': 1}::MAP(VARCHAR, INTEGER)
--------------------------------
SELECT variant_typeof(5::VARIANT), 5::VARIANT::INTEGER
--------------------------------
SELECT 1 + 2 -- a comment that says predict('m', *)
--------------------------------
-- fails
SELECT /* a /* b */ 1
--------------------------------
SELECT /* a /* predict('m', *) */ c */ 1
--------------------------------
-- a comment before it
SELECT 7
--------------------------------
/* one */ /* two
lines */ SELECT 8 /* three */
--------------------------------
SELECT 'predict(', "predict" FROM (SELECT 1 AS "predict")
-------------------------------- nothing, or hardly anything

--------------------------------
;
--------------------------------
;;;  ;
--------------------------------
   
--------------------------------
-- nothing but a comment
--------------------------------
/* nothing */
--------------------------------
-- predict('churn', *)
--------------------------------
/* create model m from 'x' */ ; -- show models
--------------------------------
SELECT 1;;
--------------------------------
;SELECT 2
--------------------------------
SELECT 1; SELECT 2; SELECT 3
--------------------------------
SELECT 1; -- one
SELECT 'predict(''churn'', *)'; /* create model */
--------------------------------
SELECT 'a;b', $$;$$, ";" FROM (SELECT 1 AS ";"); SELECT 'drop model churn;'
-------------------------------- tables and rows
CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR NOT NULL DEFAULT 'none', price DECIMAL(10, 2) CHECK (price >= 0), doubled DECIMAL(12, 2) AS (price * 2))
--------------------------------
INSERT INTO t (id, name, price) VALUES (1, 'ant', 1.5), (2, 'bee', 2.5), (3, 'cat', 3.5)
--------------------------------
INSERT INTO t (id, price) VALUES (4, DEFAULT)
--------------------------------
FROM t ORDER BY id
--------------------------------
INSERT INTO t BY NAME SELECT 9 AS price, 5 AS id RETURNING id, doubled
--------------------------------
INSERT INTO t (id, name, price) VALUES (1, 'x', 9) ON CONFLICT DO NOTHING
--------------------------------
INSERT INTO t (id, name, price) VALUES (1, 'x', 9) ON CONFLICT (id) DO UPDATE SET name = excluded.name || t.name WHERE t.id = 1 RETURNING *
--------------------------------
INSERT OR REPLACE INTO t (id, name, price) VALUES (2, 'moth', 7)
--------------------------------
INSERT OR IGNORE INTO t (id, name, price) VALUES (2, 'fly', 7)
--------------------------------
UPDATE t SET price = price + 1 WHERE id < 3 RETURNING id, price
--------------------------------
UPDATE t SET name = s.n FROM (VALUES (3, 'dog')) s(i, n) WHERE t.id = s.i
--------------------------------
DELETE FROM t WHERE id = 4 RETURNING name
--------------------------------
DELETE FROM t USING (SELECT 5 AS i) u WHERE t.id = u.i
--------------------------------
SELECT * FROM t ORDER BY ALL
--------------------------------
MERGE INTO t USING (SELECT unnest([1, 9]) AS id, 8 AS price) AS u ON t.id = u.id WHEN MATCHED THEN UPDATE SET price = u.price WHEN NOT MATCHED THEN INSERT (id, price) VALUES (u.id, u.price) RETURNING merge_action, id
--------------------------------
MERGE INTO t USING (VALUES (1)) AS u(id) USING (id) WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND id = 9 THEN UPDATE SET price = 0
--------------------------------
TABLE t
--------------------------------
SELECT count(*), sum(price), string_agg(name, ',' ORDER BY id) FROM t
--------------------------------
ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 3
--------------------------------
ALTER TABLE t DROP COLUMN extra
--------------------------------
CREATE TABLE plain AS SELECT i AS a, i % 3 AS b, 'row ' || i AS c FROM range(10) r(i)
--------------------------------
ALTER TABLE plain ALTER COLUMN a TYPE DOUBLE
--------------------------------
ALTER TABLE plain ALTER a SET DATA TYPE BIGINT USING a::BIGINT + 1
--------------------------------
ALTER TABLE plain ALTER b SET DEFAULT 5
--------------------------------
ALTER TABLE plain ALTER b DROP DEFAULT
--------------------------------
ALTER TABLE plain ALTER b SET NOT NULL
--------------------------------
ALTER TABLE plain RENAME c TO "the Text"
--------------------------------
ALTER TABLE plain RENAME TO plainer
--------------------------------
SELECT * FROM plainer LIMIT 3 OFFSET 2
--------------------------------
DESCRIBE plainer
--------------------------------
SHOW plainer
--------------------------------
SUMMARIZE plainer
--------------------------------
SUMMARIZE SELECT 1 AS x
--------------------------------
DESCRIBE SELECT 1 AS a, 'x' AS b
--------------------------------
SHOW TABLES
--------------------------------
SHOW ALL TABLES
--------------------------------
SHOW TABLES FROM main
--------------------------------
PRAGMA table_info('plainer')
--------------------------------
PRAGMA show_tables
--------------------------------
CREATE OR REPLACE TABLE plainer AS FROM range(3) SELECT range AS a
--------------------------------
CREATE TABLE IF NOT EXISTS plainer (z INTEGER)
--------------------------------
CREATE TEMP TABLE passing (a INTEGER, b VARCHAR)
--------------------------------
INSERT INTO passing SELECT a, 'x' FROM plainer
--------------------------------
CREATE TABLE like_it AS FROM plainer WITH NO DATA
--------------------------------
TRUNCATE plainer
--------------------------------
SELECT count(*) FROM plainer
--------------------------------
CREATE TABLE parent (id INTEGER PRIMARY KEY); CREATE TABLE child (id INTEGER REFERENCES parent (id), UNIQUE (id))
--------------------------------
INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1)
--------------------------------
-- fails
INSERT INTO child VALUES (2)
--------------------------------
-- fails
INSERT INTO t (id, price) VALUES (1, -3)
--------------------------------
-- fails
INSERT INTO t (id, price) VALUES (2, 3)
--------------------------------
-- fails
INSERT INTO t (id, name, price) VALUES (77, NULL, 3)
--------------------------------
-- fails
INSERT INTO parent VALUES ('not a number')
--------------------------------
-- fails
INSERT INTO parent VALUES (1, 2)
--------------------------------
DROP TABLE child; DROP TABLE parent
--------------------------------
DROP TABLE IF EXISTS no_such_table
--------------------------------
COMMENT ON TABLE t IS 'a table'; COMMENT ON COLUMN t.name IS 'create model m'
--------------------------------
SELECT comment FROM duckdb_tables() WHERE table_name = 't'
--------------------------------
SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'main' ORDER BY ALL
--------------------------------
SELECT table_schema, table_name FROM information_schema.tables ORDER BY ALL
--------------------------------
CREATE TABLE types (e ENUM('a', 'b'), s STRUCT(x INTEGER, y VARCHAR), m MAP(VARCHAR, INTEGER), l INTEGER[], f FLOAT[3], u UNION(n INTEGER, t VARCHAR), b BIT, j JSON, h HUGEINT, d DECIMAL(38, 10), i INTERVAL, bl BLOB, ts TIMESTAMP_S)
--------------------------------
INSERT INTO types VALUES ('a', {'x': 1, 'y': 'z'}, MAP {'k': 1}, [1, 2], [1, 2, 3], 5, '101', '{"a": 1}', 1, 1.5, INTERVAL 1 DAY, '\xFF', '2020-01-01 00:00:00')
--------------------------------
SELECT *, s.x, m['k'], l[1], u.n, j->'a' FROM types
--------------------------------
SELECT s.* FROM types
--------------------------------
ALTER TABLE types ADD COLUMN s.z INTEGER
--------------------------------
DESCRIBE types
-------------------------------- objects of every kind
CREATE SCHEMA s1
--------------------------------
CREATE SCHEMA IF NOT EXISTS s1
--------------------------------
CREATE TABLE s1.t (a INTEGER, b VARCHAR)
--------------------------------
CREATE VIEW v AS SELECT a AS x FROM s1.t
--------------------------------
CREATE OR REPLACE VIEW v (x, y) AS SELECT a, b FROM s1.t
--------------------------------
INSERT INTO s1.t VALUES (1, 'one'), (2, 'two')
--------------------------------
SELECT * FROM v ORDER BY x
--------------------------------
ALTER VIEW v RENAME TO w
--------------------------------
CREATE TEMP VIEW tv AS SELECT 'predict(1)' AS predict
--------------------------------
FROM tv
--------------------------------
CREATE SEQUENCE seq START 5 INCREMENT BY 2
--------------------------------
SELECT nextval('seq'), currval('seq')
--------------------------------
CREATE TABLE with_seq (id INTEGER DEFAULT nextval('seq'), x INTEGER)
--------------------------------
INSERT INTO with_seq (x) VALUES (1), (2) RETURNING id
--------------------------------
CREATE INDEX idx ON s1.t (a)
--------------------------------
CREATE UNIQUE INDEX idx2 ON s1.t (b, a)
--------------------------------
SELECT * FROM s1.t WHERE a = 2
--------------------------------
DROP INDEX s1.idx2
--------------------------------
CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')
--------------------------------
CREATE TYPE pair AS STRUCT(l INTEGER, r INTEGER)
--------------------------------
CREATE TYPE small AS TINYINT
--------------------------------
SELECT 'ok'::mood > 'sad'::mood, {'l': 1, 'r': 2}::pair, 5::small
--------------------------------
CREATE MACRO twice(x) AS x * 2
--------------------------------
CREATE OR REPLACE MACRO add_to(a, b := 5) AS a + b
--------------------------------
SELECT twice(4), add_to(1), add_to(1, b := 7)
--------------------------------
CREATE MACRO rows_of(n) AS TABLE SELECT range AS i FROM range(n)
--------------------------------
FROM rows_of(3)
--------------------------------
CREATE MACRO many(a) AS a, (a, b) AS a + b
--------------------------------
SELECT many(1), many(1, 2)
--------------------------------
CREATE TEMP MACRO passing(x) AS x || '!'
--------------------------------
SELECT passing('a')
--------------------------------
CREATE FUNCTION halved(x) AS x / 2
--------------------------------
SELECT halved(5)
--------------------------------
DROP FUNCTION halved
--------------------------------
DROP MACRO TABLE rows_of
--------------------------------
DROP TYPE small
--------------------------------
DROP SEQUENCE seq CASCADE
--------------------------------
DROP VIEW w
--------------------------------
-- fails
DROP SCHEMA s1
--------------------------------
DROP SCHEMA s1 CASCADE
--------------------------------
SELECT view_name FROM duckdb_views() WHERE NOT internal
--------------------------------
SELECT function_name FROM duckdb_functions() WHERE NOT internal AND NOT starts_with(function_name, 'sqlml_') ORDER BY ALL
--------------------------------
SELECT type_name FROM duckdb_types() WHERE NOT internal ORDER BY ALL
--------------------------------
COMMENT ON VIEW tv IS 'x'
--------------------------------
COMMENT ON MACRO twice IS 'doubles'
--------------------------------
CREATE SCHEMA "select"; CREATE TABLE "select"."from" ("where" INTEGER, "Group By" VARCHAR)
--------------------------------
SELECT "where", "Group By" FROM "select"."from"
-------------------------------- names that are ours elsewhere
CREATE TABLE predict (predict INTEGER, model VARCHAR, explain INTEGER, models INTEGER, transform INTEGER)
--------------------------------
INSERT INTO predict VALUES (1, 'm', 2, 3, 4)
--------------------------------
SELECT predict, model, explain, models, transform FROM predict
--------------------------------
SELECT predict.predict, p.model FROM predict, predict p
--------------------------------
INSERT INTO predict(predict, model) VALUES (2, 'n')
--------------------------------
INSERT INTO predict (predict) SELECT 3
--------------------------------
UPDATE predict SET model = 'create model x from y' WHERE model IS NULL
--------------------------------
CREATE TABLE model (id INTEGER)
--------------------------------
CREATE TABLE models (id INTEGER, model INTEGER)
--------------------------------
INSERT INTO model VALUES (1); INSERT INTO models VALUES (1, 2)
--------------------------------
SELECT * FROM model JOIN models USING (id)
--------------------------------
SELECT * FROM model m JOIN models ON m.id = models.id
--------------------------------
SELECT 1 AS model WHERE 1 IN (SELECT id FROM model)
--------------------------------
DESCRIBE model
--------------------------------
DESCRIBE models
--------------------------------
SHOW model
--------------------------------
-- known: SHOW MODELS is sqlml's own statement, also where a table has the name
SHOW models
--------------------------------
SHOW "models"
--------------------------------
SUMMARIZE model
--------------------------------
CREATE INDEX on_model ON model (id)
--------------------------------
CREATE VIEW explain AS SELECT 1 AS model
--------------------------------
SELECT * FROM explain
--------------------------------
CREATE MACRO predict(x) AS x + 100
--------------------------------
SELECT predict(1), predict(predict) FROM predict ORDER BY ALL
--------------------------------
CREATE OR REPLACE MACRO predict(m, x) AS m || ':' || x
--------------------------------
SELECT predict('mine', 5)
--------------------------------
SELECT predict('mine', p.predict), p.model FROM predict p ORDER BY 1
--------------------------------
SELECT  predict( 'mine' ,  7 )  AS  "spaced"  , current_query()
--------------------------------
SELECT main.predict('mine', 1)
--------------------------------
CREATE MACRO transform(x) AS x * 3
--------------------------------
SELECT transform(2), [transform(x) FOR x IN [1, 2]]
--------------------------------
SELECT list_transform([1, 2], lambda transform: transform + 1)
--------------------------------
CREATE MACRO model(x) AS 'model ' || x
--------------------------------
SELECT model('a'), model(model) FROM (SELECT 'b' AS model)
--------------------------------
CREATE MACRO explain(x) AS x
--------------------------------
SELECT "explain"(5)
--------------------------------
CREATE MACRO predict_proba(m, x, class := 'a') AS m || x || class
--------------------------------
SELECT predict_proba('mine', 'x'), predict_proba('mine', 'x', class := 'c')
--------------------------------
CREATE MACRO predict_score() AS 5
--------------------------------
SELECT predict_score()
--------------------------------
CREATE MACRO ml_predict(t) AS TABLE SELECT 1 AS x, t AS t
--------------------------------
SELECT * FROM ml_predict(5)
--------------------------------
CREATE SCHEMA ml; CREATE MACRO ml.predict(x) AS x - 1
--------------------------------
SELECT ml.predict(10), ml . predict (11)
--------------------------------
EXPLAIN SELECT predict('mine', 5)
--------------------------------
explain   select predict(predict, 1) from predict
--------------------------------
-- before it
EXPLAIN SELECT transform(5)
--------------------------------
EXPLAIN (FORMAT json) SELECT transform(5)
--------------------------------
EXPLAIN ANALYZE SELECT 1 WHERE false
--------------------------------
PREPARE predict AS SELECT predict('mine', $1)
--------------------------------
EXECUTE predict(5)
--------------------------------
DEALLOCATE predict
--------------------------------
CREATE VIEW over_mine AS SELECT predict('mine', predict) AS y FROM predict
--------------------------------
FROM over_mine ORDER BY y
--------------------------------
SELECT sql FROM duckdb_views() WHERE view_name = 'over_mine'
--------------------------------
CREATE TABLE stored (a INTEGER, b VARCHAR DEFAULT (transform(2)), c INTEGER AS (transform(a)))
--------------------------------
INSERT INTO stored (a) VALUES (1) RETURNING *
--------------------------------
COMMENT ON TABLE model IS 'drop model m'
--------------------------------
COMMENT ON COLUMN model.id IS 'on model'
--------------------------------
SELECT predict('mine', 1); SELECT transform(2) AS t
--------------------------------
-- first
SELECT transform(1) ; /* between */ SELECT transform(2), 'create model' -- last
;
--------------------------------
ALTER TABLE model ADD COLUMN predict INTEGER
--------------------------------
-- fails
ALTER TABLE model RENAME COLUMN predict TO transform
--------------------------------
DROP INDEX on_model
--------------------------------
ALTER TABLE model RENAME COLUMN predict TO transform
--------------------------------
SELECT "predict" ('mine', 3), "transform"(4)
--------------------------------
SELECT 'x' AS "predict('churn', *)", "predict('churn', *)" || 'y' AS z
--------------------------------
WITH predict AS (SELECT 1 AS a), model(x) AS (SELECT 2) SELECT * FROM predict, model
--------------------------------
WITH transform (a) AS (SELECT 1) SELECT a FROM transform
--------------------------------
SELECT * FROM (SELECT 1) AS predict (a)
--------------------------------
SELECT * FROM (SELECT 2) AS transform(a)
--------------------------------
SELECT a AS explain, a AS model FROM (SELECT 1 AS a) ORDER BY explain, model
--------------------------------
COPY (SELECT predict('mine', 'x') AS model) TO '{folder}/predict.csv'
--------------------------------
FROM '{folder}/predict.csv'
--------------------------------
CREATE TYPE model AS ENUM ('predict', 'transform')
--------------------------------
SELECT 'predict'::model
--------------------------------
CREATE SEQUENCE model_seq; CREATE SEQUENCE predict
--------------------------------
SELECT nextval('predict')
--------------------------------
-- fails
SELECT predict(1, 2, 3)
--------------------------------
-- fails
SELECT transform(1, 2)
--------------------------------
-- fails
SELECT predict_score(1
--------------------------------
-- fails
SELECT transform(nothing) FROM predict
--------------------------------
-- fails
SELECT 1; SELECT transform(nothing)
--------------------------------
-- fails
SELECT 1;

  SELECT 2 AS x,
      transform(nothing)
  FROM predict
--------------------------------
-- fails
SELECT 'create model';
SELEC transform(1)
--------------------------------
-- fails
CREATE TABLE model (id INTEGER)
--------------------------------
-- fails
DESCRIBE no_model
--------------------------------
DROP TABLE stored; DROP VIEW over_mine
--------------------------------
DROP MACRO predict; DROP MACRO transform; DROP MACRO model
--------------------------------
-- fails
SELECT predict(5)
--------------------------------
-- fails
SELECT predict(predict, 5) FROM predict
--------------------------------
-- fails
SELECT transform(5)
--------------------------------
DROP TABLE model
--------------------------------
DROP TABLE models
-------------------------------- queries
CREATE TABLE e AS SELECT i AS id, i % 4 AS dept, (i * 37) % 101 AS pay, DATE '2020-01-01' + i::INTEGER AS day, CASE WHEN i % 5 = 0 THEN NULL ELSE 'n' || i END AS name FROM range(40) r(i)
--------------------------------
CREATE TABLE d AS SELECT * FROM (VALUES (0, 'zero'), (1, 'one'), (2, 'two'), (7, 'seven')) v(dept, title)
--------------------------------
SELECT dept, count(*), sum(pay) FROM e GROUP BY dept ORDER BY dept
--------------------------------
SELECT dept, max(pay) AS m FROM e GROUP BY ALL HAVING m > 50 ORDER BY ALL DESC
--------------------------------
SELECT dept, id % 2 AS odd, count(*) FROM e GROUP BY ROLLUP (dept, odd) ORDER BY ALL
--------------------------------
SELECT dept, count(*), grouping(dept) FROM e GROUP BY CUBE (dept) ORDER BY ALL
--------------------------------
SELECT dept, name, count(*) FROM e GROUP BY GROUPING SETS ((dept), (name), ()) ORDER BY ALL LIMIT 5
--------------------------------
SELECT id, pay, row_number() OVER (PARTITION BY dept ORDER BY pay DESC) AS r FROM e QUALIFY r <= 2 ORDER BY ALL
--------------------------------
SELECT id, sum(pay) OVER w, lag(pay, 1, 0) OVER w, rank() OVER (ORDER BY dept) FROM e WINDOW w AS (PARTITION BY dept ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) ORDER BY id LIMIT 10
--------------------------------
SELECT id, avg(pay) OVER (ORDER BY day RANGE BETWEEN INTERVAL 3 DAYS PRECEDING AND CURRENT ROW) FROM e ORDER BY id LIMIT 5
--------------------------------
SELECT id, first_value(name IGNORE NULLS) OVER (ORDER BY id) FROM e ORDER BY id LIMIT 3
--------------------------------
SELECT count(*) FILTER (WHERE pay > 50), list(id ORDER BY pay DESC)[1:3], arg_max(name, pay), median(pay), mode(dept), quantile_cont(pay, [0.25, 0.75]), approx_count_distinct(dept) FROM e
--------------------------------
SELECT DISTINCT dept FROM e ORDER BY dept
--------------------------------
SELECT DISTINCT ON (dept) dept, id FROM e ORDER BY dept, id DESC
--------------------------------
SELECT * FROM e JOIN d USING (dept) ORDER BY id LIMIT 3
--------------------------------
SELECT * FROM e NATURAL JOIN d ORDER BY id LIMIT 3
--------------------------------
SELECT e.id, d.title FROM e LEFT JOIN d ON e.dept = d.dept AND e.pay > 20 ORDER BY ALL LIMIT 6
--------------------------------
SELECT d.title, e.id FROM e RIGHT OUTER JOIN d ON e.dept = d.dept ORDER BY ALL LIMIT 3
--------------------------------
SELECT count(*), count(e.id), count(d.title) FROM e FULL JOIN d USING (dept)
--------------------------------
SELECT * FROM d CROSS JOIN (VALUES (1), (2)) v(x) ORDER BY ALL
--------------------------------
SELECT * FROM d SEMI JOIN e USING (dept) ORDER BY ALL
--------------------------------
SELECT * FROM d ANTI JOIN e USING (dept)
--------------------------------
SELECT * FROM d POSITIONAL JOIN (SELECT unnest([10, 20]) AS x)
--------------------------------
SELECT e.id, q.price FROM e ASOF JOIN (VALUES (DATE '2020-01-03', 1), (DATE '2020-01-20', 2)) q(day, price) ON e.day >= q.day ORDER BY ALL LIMIT 20
--------------------------------
SELECT d.dept, x.top FROM d, LATERAL (SELECT max(pay) AS top FROM e WHERE e.dept = d.dept) x ORDER BY ALL
--------------------------------
SELECT d.title, (SELECT count(*) FROM e WHERE e.dept = d.dept) AS n FROM d ORDER BY ALL
--------------------------------
SELECT * EXCLUDE (day, name) REPLACE (pay * 2 AS pay) FROM e ORDER BY id LIMIT 2
--------------------------------
SELECT * RENAME (pay AS wage) FROM e ORDER BY id LIMIT 1
--------------------------------
SELECT COLUMNS('^(id|pay)$') + 1 FROM e ORDER BY ALL LIMIT 2
--------------------------------
SELECT min(COLUMNS(* EXCLUDE (name))), max(COLUMNS(lambda c: c LIKE 'd%')) FROM e
--------------------------------
SELECT COLUMNS('(i)(d)') AS '\2\1' FROM e ORDER BY ALL LIMIT 1
--------------------------------
SELECT coalesce(*COLUMNS(['name', 'name'])) FROM e ORDER BY 1 LIMIT 1
--------------------------------
SELECT * LIKE 'd%' FROM e ORDER BY ALL LIMIT 1
--------------------------------
SELECT e FROM e ORDER BY id LIMIT 1
--------------------------------
FROM e SELECT id WHERE pay = 37
--------------------------------
FROM e
--------------------------------
FROM e WHERE id < 3 ORDER BY id LIMIT 50%
--------------------------------
SELECT * FROM e USING SAMPLE reservoir(5 ROWS) REPEATABLE (42)
--------------------------------
SELECT count(*) FROM e TABLESAMPLE bernoulli(50%) REPEATABLE (7)
--------------------------------
SELECT count(*) FROM e USING SAMPLE 10% (system, 3)
--------------------------------
SELECT id FROM e WHERE dept = 1 UNION SELECT dept FROM d ORDER BY 1
--------------------------------
SELECT id FROM e WHERE dept = 1 UNION ALL BY NAME SELECT dept AS id, title FROM d ORDER BY ALL
--------------------------------
SELECT dept FROM e INTERSECT SELECT dept FROM d ORDER BY 1
--------------------------------
SELECT dept FROM e EXCEPT ALL SELECT dept FROM d ORDER BY 1 LIMIT 4
--------------------------------
(SELECT 1 AS a) UNION ALL (SELECT 2 ORDER BY 1) ORDER BY a DESC
--------------------------------
WITH a AS (SELECT 1 AS x), b AS MATERIALIZED (SELECT x + 1 AS y FROM a), c AS NOT MATERIALIZED (FROM b) SELECT * FROM a, b, c
--------------------------------
WITH RECURSIVE f(n, v) AS (SELECT 1, 1 UNION ALL SELECT n + 1, v * (n + 1) FROM f WHERE n < 10) SELECT * FROM f
--------------------------------
WITH RECURSIVE best(k, v) USING KEY (k) AS (SELECT 1, 10 UNION SELECT k, v - 1 FROM best WHERE v > 7) SELECT * FROM best
--------------------------------
WITH RECURSIVE cc(a, b) USING KEY (a) AS (SELECT id, dept FROM e WHERE id < 5 UNION (SELECT c.a, min(d.dept) FROM cc c, d WHERE c.b > d.dept GROUP BY c.a)) SELECT * FROM cc ORDER BY ALL
--------------------------------
PIVOT e ON dept USING sum(pay)
--------------------------------
PIVOT (SELECT dept, pay, id % 2 AS odd FROM e) ON dept IN (0, 1) USING count(*) AS n, max(pay) AS m GROUP BY odd
--------------------------------
SELECT * FROM (PIVOT e ON dept USING sum(pay) GROUP BY name) ORDER BY ALL LIMIT 2
--------------------------------
SELECT * FROM e PIVOT (sum(pay) FOR dept IN (0, 1) GROUP BY name) ORDER BY ALL LIMIT 2
--------------------------------
UNPIVOT (SELECT 1 AS jan, 2 AS feb) ON jan, feb INTO NAME month VALUE sales
--------------------------------
UNPIVOT (SELECT 1 AS jan, 2 AS feb) ON COLUMNS(*)
--------------------------------
SELECT * FROM (SELECT 1 AS a, 2 AS b) UNPIVOT INCLUDE NULLS (v FOR n IN (a, b))
--------------------------------
SELECT * FROM range(3) AS r(i), unnest([10, 20]) AS u(x) ORDER BY ALL
--------------------------------
SELECT * FROM unnest([5, 6]) WITH ORDINALITY
--------------------------------
SELECT * FROM generate_series(DATE '2024-01-01', DATE '2024-01-03', INTERVAL 1 DAY)
--------------------------------
SELECT * FROM query('SELECT 1 AS one'), query_table('d') ORDER BY ALL
--------------------------------
SELECT * FROM repeat('x', 2), glob('{folder}/nothing*.csv')
--------------------------------
SELECT id FROM e ORDER BY name NULLS FIRST, pay DESC, id LIMIT 5 OFFSET 1
--------------------------------
SELECT id FROM e ORDER BY id DESC FETCH FIRST 2 ROWS ONLY
--------------------------------
SELECT title COLLATE NOCASE = 'ONE' FROM d ORDER BY title COLLATE DE
--------------------------------
SELECT rowid, dept FROM d ORDER BY rowid
--------------------------------
SELECT histogram(dept), list_distinct(list(dept)).list_sort(), struct_pack(a := 1), map_from_entries([(1, 'a')]) FROM e
--------------------------------
SELECT id, pay > avg(pay) OVER () AS above FROM e ORDER BY id LIMIT 3
--------------------------------
-- fails
SELECT id, pay, pay > avg(pay) OVER () AS above FROM e WHERE id BETWEEN SYMMETRIC 5 AND 3
--------------------------------
SELECT (id, dept) IN ((1, 1), (2, 2)), id IN (1, 2), [id] = [1] FROM e ORDER BY id LIMIT 3
--------------------------------
SELECT current_query(), count(*) FROM e AS "e é" WHERE "e é".id > 3 /* 🦆 */
--------------------------------
EXPLAIN SELECT id FROM e WHERE dept = 3
--------------------------------
EXPLAIN (FORMAT json) SELECT 1
--------------------------------
DESCRIBE SELECT * FROM e
--------------------------------
SUMMARIZE e
--------------------------------
SELECT * FROM (DESCRIBE e)
--------------------------------
SELECT column_name FROM (SUMMARIZE d)
-------------------------------- settings, pragmas and calls
SET threads = 1
--------------------------------
SELECT current_setting('threads')
--------------------------------
SET SESSION default_null_order = 'nulls_first'
--------------------------------
SELECT * FROM (VALUES (1), (NULL)) v(a) ORDER BY a
--------------------------------
RESET default_null_order
--------------------------------
SET GLOBAL default_order = 'DESC'
--------------------------------
SELECT * FROM (VALUES (1), (2)) v(a) ORDER BY a
--------------------------------
RESET GLOBAL default_order
--------------------------------
SET VARIABLE n = 5
--------------------------------
SELECT getvariable('n') + 1
--------------------------------
SET VARIABLE model = 'predict'
--------------------------------
SELECT getvariable('model')
--------------------------------
RESET VARIABLE n
--------------------------------
SET TimeZone = 'UTC'
--------------------------------
SET search_path = 'main'
--------------------------------
SET schema = 'main'
--------------------------------
PRAGMA threads = 1
--------------------------------
PRAGMA enable_object_cache
--------------------------------
PRAGMA version
--------------------------------
PRAGMA show_databases
--------------------------------
-- known: the functions that a model call made are functions of the database
PRAGMA functions
--------------------------------
PRAGMA collations
--------------------------------
CALL pragma_version()
--------------------------------
SELECT library_version FROM pragma_version()
--------------------------------
CALL range(3)
--------------------------------
SELECT schema_name FROM duckdb_schemas() ORDER BY ALL
--------------------------------
SELECT name FROM duckdb_settings() WHERE name LIKE 'default%' ORDER BY ALL
--------------------------------
SELECT extension_name FROM duckdb_extensions() WHERE loaded AND extension_name <> 'sqlml' ORDER BY ALL
--------------------------------
LOAD json
--------------------------------
CHECKPOINT
--------------------------------
FORCE CHECKPOINT
--------------------------------
VACUUM
--------------------------------
ANALYZE
--------------------------------
SHOW DATABASES
--------------------------------
USE main
--------------------------------
SELECT * FROM duckdb_keywords() ORDER BY ALL LIMIT 5
--------------------------------
PRAGMA disable_progress_bar
--------------------------------
PRAGMA explain_output = 'all'
--------------------------------
RESET explain_output
--------------------------------
-- fails
PRAGMA no_such_pragma_is_an_error = 5
--------------------------------
-- fails
SET no_such_setting = 1
--------------------------------
-- fails
PRAGMA no_such_pragma
--------------------------------
-- fails
CALL no_such_function(1)
--------------------------------
-- fails
LOAD no_such_extension
-------------------------------- transactions
CREATE TABLE t (a INTEGER PRIMARY KEY)
--------------------------------
BEGIN
--------------------------------
INSERT INTO t VALUES (1)
--------------------------------
ROLLBACK
--------------------------------
FROM t
--------------------------------
BEGIN TRANSACTION
--------------------------------
INSERT INTO t VALUES (2)
--------------------------------
COMMIT
--------------------------------
FROM t
--------------------------------
START TRANSACTION; INSERT INTO t VALUES (3); COMMIT; FROM t ORDER BY a
--------------------------------
BEGIN TRANSACTION READ ONLY
--------------------------------
-- fails
INSERT INTO t VALUES (4)
--------------------------------
ROLLBACK
--------------------------------
CREATE MACRO transform(x) AS x * 3
--------------------------------
BEGIN
--------------------------------
SELECT transform(a) FROM t ORDER BY a
--------------------------------
-- fails
INSERT INTO t VALUES (2)
--------------------------------
-- fails
SELECT 1
--------------------------------
-- fails
SELECT transform(1)
--------------------------------
-- fails
SELECT 'predict(''churn'', *)' AS "create model"
--------------------------------
-- fails
-- known: whether there is such a model cannot be asked in an aborted transaction
SELECT predict('mine', a) FROM t
--------------------------------
-- fails
EXPLAIN SELECT transform(a) FROM t
--------------------------------
ROLLBACK
--------------------------------
SELECT transform(a) FROM t ORDER BY a
--------------------------------
BEGIN; CREATE TABLE gone (a INTEGER); ABORT
--------------------------------
-- fails
FROM gone
--------------------------------
-- fails
COMMIT
--------------------------------
-- fails
ROLLBACK
--------------------------------
-- fails
BEGIN; BEGIN
--------------------------------
ROLLBACK
--------------------------------
BEGIN; CREATE MACRO predict(m, x) AS x + 1
--------------------------------
SELECT predict('mine', a) FROM t ORDER BY a
--------------------------------
ROLLBACK
--------------------------------
-- fails
SELECT predict(a, 2) FROM t
-------------------------------- prepared statements
CREATE TABLE t AS SELECT i AS a FROM range(5) r(i)
--------------------------------
PREPARE p AS SELECT a FROM t WHERE a > $1 AND a < $2
--------------------------------
EXECUTE p(1, 4)
--------------------------------
EXECUTE p(0, 2)
--------------------------------
DEALLOCATE p
--------------------------------
-- fails
EXECUTE p(1, 4)
--------------------------------
PREPARE named AS SELECT $low AS low, a FROM t WHERE a = $low
--------------------------------
EXECUTE named(low := 3)
--------------------------------
PREPARE add_one AS INSERT INTO t VALUES (?)
--------------------------------
EXECUTE add_one(77)
--------------------------------
DEALLOCATE PREPARE add_one
--------------------------------
PREPARE model AS SELECT 'predict(' || $1
--------------------------------
EXECUTE model('x')
--------------------------------
DEALLOCATE model
--------------------------------
-- fails
SELECT a FROM t WHERE a = ?
--------------------------------
-- fails
SELECT a FROM t WHERE a = $x AND 'create model' = 'x'
--------------------------------
DEALLOCATE nothing
-------------------------------- files and databases
CREATE TABLE t AS SELECT i AS a, 'x' || i AS b FROM range(4) r(i)
--------------------------------
COPY t TO '{folder}/t.csv'
--------------------------------
COPY t TO '{folder}/t.parquet' (FORMAT parquet, COMPRESSION zstd)
--------------------------------
COPY (SELECT a FROM t WHERE a > 1) TO '{folder}/model.json' (FORMAT json, ARRAY true)
--------------------------------
COPY t (b, a) TO '{folder}/two.csv' WITH (HEADER false, DELIMITER '|', QUOTE '"')
--------------------------------
SELECT * FROM '{folder}/t.csv' ORDER BY a
--------------------------------
SELECT * FROM read_csv('{folder}/two.csv', header = false, columns = {'b': 'VARCHAR', 'a': 'INTEGER'}) ORDER BY a
--------------------------------
SELECT a, file_row_number FROM read_parquet('{folder}/t.parquet', file_row_number := true) ORDER BY a
--------------------------------
SELECT * FROM read_json_auto('{folder}/model.json')
--------------------------------
SELECT name, type FROM parquet_schema('{folder}/t.parquet')
--------------------------------
SELECT content FROM read_text('{folder}/t.csv')
--------------------------------
CREATE TABLE copied (a INTEGER, b VARCHAR)
--------------------------------
COPY copied FROM '{folder}/t.csv' (HEADER)
--------------------------------
COPY copied (a, b) FROM '{folder}/t.parquet'
--------------------------------
SELECT a, count(*) FROM copied GROUP BY a ORDER BY a
--------------------------------
COPY t TO '{folder}/parts' (FORMAT parquet, PARTITION_BY (a), OVERWRITE_OR_IGNORE)
--------------------------------
SELECT a, b FROM read_parquet('{folder}/parts/*/*.parquet', hive_partitioning = true) ORDER BY a
--------------------------------
COPY (FROM t) TO '{folder}/x.csv' (RETURN_STATS false)
--------------------------------
SELECT * FROM sniff_csv('{folder}/t.csv')
--------------------------------
ATTACH ':memory:' AS other
--------------------------------
CREATE TABLE other.t AS SELECT 1 AS x
--------------------------------
USE other
--------------------------------
FROM t
--------------------------------
CREATE SCHEMA model; CREATE TABLE model.predict (a INTEGER)
--------------------------------
SELECT * FROM other.model.predict
--------------------------------
USE other.model
--------------------------------
SHOW TABLES
--------------------------------
USE untouched
--------------------------------
SELECT * FROM other.t, untouched.t ORDER BY ALL LIMIT 2
--------------------------------
-- fails
DETACH untouched
--------------------------------
DETACH other
--------------------------------
ATTACH '{folder}/second.duckdb' AS second
--------------------------------
CREATE TABLE second.kept AS FROM t
--------------------------------
COPY FROM DATABASE untouched TO second
--------------------------------
SELECT count(*) FROM second.copied
--------------------------------
DETACH DATABASE IF EXISTS second
--------------------------------
ATTACH IF NOT EXISTS '{folder}/second.duckdb' (READ_ONLY)
--------------------------------
-- fails
CREATE TABLE second.more (a INTEGER)
--------------------------------
SELECT sum(a) FROM second.kept
--------------------------------
DETACH second
--------------------------------
EXPORT DATABASE '{folder}/exported'
--------------------------------
ATTACH ':memory:' AS empty
--------------------------------
USE empty
--------------------------------
IMPORT DATABASE '{folder}/exported'
--------------------------------
SELECT a, b FROM empty.main.t ORDER BY a
--------------------------------
USE untouched
--------------------------------
DETACH empty
--------------------------------
EXPORT DATABASE '{folder}/exported_csv' (FORMAT csv, DELIMITER ';')
--------------------------------
-- fails
ATTACH '{folder}/no/such/folder.duckdb'
--------------------------------
-- fails
SELECT * FROM '{folder}/no_such.csv'
--------------------------------
-- fails
COPY t TO '{folder}/no/such/folder.csv'
--------------------------------
-- fails
COPY copied FROM '{folder}/model.json' (FORMAT no_such_format)
--------------------------------
-- fails
USE no_such_database
--------------------------------
-- fails
IMPORT DATABASE '{folder}/never_exported'
-------------------------------- statements that fail
CREATE TABLE t (a INTEGER, b VARCHAR)
--------------------------------
-- fails
SELEC 1
--------------------------------
-- fails
SELECT
--------------------------------
-- fails
SELECT FROM WHERE
--------------------------------
-- fails
SELECT 1 +
--------------------------------
-- fails
SELECT (1
--------------------------------
-- fails
SELECT 1)
--------------------------------
-- fails
SELECT 'open
--------------------------------
-- fails
SELECT "open
--------------------------------
-- fails
SELECT $$open
--------------------------------
-- fails
SELECT 'open predict(''churn'', *)
--------------------------------
-- fails
SELECT /* open predict('churn', *)
--------------------------------
-- fails
SELECT 1; SELEC 2
--------------------------------
-- fails
SELECT 'é', '🦆', nothing FROM t
--------------------------------
-- fails
SELECT nothing FROM t
--------------------------------
-- fails
SELECT 1,
    2,
    nothing
FROM t
--------------------------------
-- fails
-- a comment
SELECT a, nothing /* here */ FROM t -- 'predict('
--------------------------------
-- fails
SELECT * FROM no_such_table
--------------------------------
-- fails
SELECT no_such_function(1)
--------------------------------
-- fails
SELECT abs('a', 'b')
--------------------------------
-- fails
SELECT t.nothing FROM t
--------------------------------
-- fails
SELECT x.a FROM t
--------------------------------
-- fails
SELECT a FROM t, t AS u
--------------------------------
-- fails
SELECT * FROM no_schema.t
--------------------------------
-- fails
SELECT a, count(*) FROM t
--------------------------------
-- fails
SELECT a FROM t GROUP BY b
--------------------------------
-- fails
SELECT sum(sum(a)) FROM t
--------------------------------
-- fails
SELECT a FROM t WHERE sum(a) > 1
--------------------------------
-- fails
SELECT 'x'::INTEGER
--------------------------------
-- fails
SELECT 1::BOOLEAN + DATE '2020-01-01'
--------------------------------
-- fails
SELECT 9223372036854775807 + 1
--------------------------------
-- fails
SELECT error('the user''s own: create model')
--------------------------------
-- fails
SELECT (SELECT unnest([1, 2]))
--------------------------------
-- fails
SELECT 1 UNION SELECT 1, 2
--------------------------------
-- fails
SELECT * FROM t ORDER BY 5
--------------------------------
-- fails
SELECT a FROM t LIMIT -1
--------------------------------
-- fails
SELECT row_number() OVER (ORDER BY nothing) FROM t
--------------------------------
-- fails
WITH r AS (SELECT * FROM r) SELECT * FROM r
--------------------------------
-- fails
SELECT COLUMNS('nothing') FROM t
--------------------------------
-- fails
SELECT * EXCLUDE (nothing) FROM t
--------------------------------
-- fails
SELECT abs(*) FROM t
--------------------------------
-- fails
CREATE TABLE t (a INTEGER)
--------------------------------
-- fails
CREATE TABLE x (a INTEGER, a INTEGER)
--------------------------------
-- fails
CREATE TABLE x (a NO_SUCH_TYPE)
--------------------------------
-- fails
CREATE TABLE
--------------------------------
-- fails
CREATE THING x
--------------------------------
-- fails
CREATE VIEW v AS SELECT nothing FROM t
--------------------------------
-- fails
CREATE INDEX i ON no_such_table (a)
--------------------------------
-- fails
CREATE TYPE mood AS ENUM ('a', 'a')
--------------------------------
-- fails
DROP TABLE no_such_table
--------------------------------
-- fails
DROP VIEW t
--------------------------------
-- fails
DROP SCHEMA main
--------------------------------
-- fails
ALTER TABLE t DROP COLUMN nothing
--------------------------------
-- fails
ALTER TABLE no_such_table ADD COLUMN a INTEGER
--------------------------------
-- fails
INSERT INTO t VALUES (1)
--------------------------------
-- fails
INSERT INTO t (nothing) VALUES (1)
--------------------------------
-- fails
UPDATE t SET nothing = 1
--------------------------------
-- fails
DELETE FROM t WHERE nothing
--------------------------------
-- fails
MERGE INTO t USING no_such_table u ON t.a = u.a WHEN MATCHED THEN DELETE
--------------------------------
-- fails
EXPLAIN SELECT nothing FROM t
--------------------------------
-- fails
PREPARE p AS SELECT nothing FROM t
--------------------------------
-- fails
PIVOT t ON nothing USING sum(a)
--------------------------------
-- fails
SELECT list_transform([1], lambda x: x + nothing)
--------------------------------
-- fails
SELECT struct_extract({'a': 1}, 'b')
--------------------------------
-- fails
SELECT {'a': 1}.b
--------------------------------
-- fails
SELECT TIMESTAMP 'not a time'
--------------------------------
-- fails
SELECT CAST(300 AS TINYINT)
--------------------------------
-- fails
SELECT '1' + [2]
--------------------------------
-- fails
SELECT 1 AS a; SELECT nothing; SELECT 3
--------------------------------
-- fails
GRANT ALL ON t TO me
--------------------------------
-- fails
SHOW no_such_table
--------------------------------
-- fails
DESCRIBE no_such_table
--------------------------------
-- fails
CREATE MACRO bad(x) AS nothing(x)
--------------------------------
-- fails
hello
--------------------------------
-- fails
?
--------------------------------
-- fails
SELECT 1 2 3
--------------------------------
-- fails
-- known: a near miss of a name of ours, with a string, gets a word of advice below the message
SELECT predict_prob('churn', a) FROM t
