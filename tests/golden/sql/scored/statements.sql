-- name: copy a query to a file
COPY (SELECT id, predict('churn', *) AS p FROM customers ORDER BY id) TO 'out.csv' (HEADER)
-- expect:
COPY (SELECT id, p FROM scored ORDER BY id) TO 'out.csv' (HEADER)
-- then:
FROM 'out.csv'
-- spark:
INSERT OVERWRITE DIRECTORY 'out.csv' USING csv OPTIONS (header true) SELECT id, predict('churn', *) AS p FROM customers ORDER BY id
-- spark then:
SELECT id, p = 'yes' AS p FROM csv.`out.csv` WITH ('header' = 'true', 'inferSchema' = 'true')

-- name: copy from-first to parquet
COPY (FROM customers SELECT *, predict_proba('churn', *) AS pm, predict_score('risk', *) AS rm) TO 'out.parquet' (FORMAT parquet, COMPRESSION zstd)
-- expect:
COPY (SELECT id, name, tenure, charges, plan, region, visits, joined, pm, rm FROM scored) TO 'out.parquet'
-- then:
FROM 'out.parquet'
-- spark:
INSERT OVERWRITE DIRECTORY 'out.parquet' USING parquet OPTIONS (compression 'zstd') FROM customers |> SELECT *, predict_proba('churn', *) AS pm, predict_score('risk', *) AS rm
-- spark then:
SELECT * FROM parquet.`out.parquet`

-- name: copy partitions by a label
COPY (SELECT id, predict('churn', *) AS p FROM customers) TO 'by_label' (FORMAT csv, PARTITION_BY (p))
-- expect:
COPY (SELECT id, p FROM scored) TO 'by_label' (FORMAT csv, PARTITION_BY (p))
-- then:
SELECT id, p FROM read_csv('by_label/*/*.csv', hive_partitioning = true)
-- spark:
CREATE TABLE by_label USING csv PARTITIONED BY (p) AS SELECT id, predict('churn', *) AS p FROM customers
-- spark then:
SELECT id, p FROM by_label

-- name: copy with a definition inside
COPY (WITH s AS (SELECT id, predict('value', *) AS v FROM customers) FROM s WHERE v > 0) TO 'out.json'
-- expect:
COPY (SELECT id, v FROM scored WHERE v > 0) TO 'out.json'
-- then:
FROM 'out.json'
-- spark:
INSERT OVERWRITE DIRECTORY 'out.json' USING json WITH s AS (SELECT id, predict('value', *) AS v FROM customers) SELECT * FROM s WHERE v > 0
-- spark then:
SELECT id, v FROM json.`out.json`

-- name: copy from a file into a table, then score
COPY (SELECT * FROM customers WHERE id < 7) TO 'in.csv'; CREATE TABLE got AS FROM customers LIMIT 0; COPY got FROM 'in.csv'; SELECT id, predict('churn', *) AS p FROM got
-- expect:
SELECT id, p FROM scored WHERE id < 7
-- spark:
INSERT OVERWRITE DIRECTORY 'in.csv' USING csv OPTIONS (header true) SELECT * FROM customers WHERE id < 7; CREATE TABLE got AS SELECT * FROM customers LIMIT 0; INSERT INTO got SELECT * FROM csv.`in.csv` WITH ('header' = 'true', 'inferSchema' = 'true'); SELECT id, predict('churn', *) AS p FROM got

-- name: prepare and execute
PREPARE over AS SELECT id FROM customers WHERE predict_proba('churn', *, class := 'yes') > ?; EXECUTE over(0.6)
-- expect:
SELECT id FROM scored WHERE q > 0.6
-- spark gap: Spark has no PREPARE

-- name: prepare with a numbered parameter in a call
PREPARE wish AS SELECT id, predict('value', charges := charges * $2, visits := $1::INTEGER) AS v FROM customers; EXECUTE wish(4, 1.5)
-- rows:
SELECT id, charges * 1.5 AS charges, 4 AS visits FROM customers
-- expect:
SELECT id, v FROM given
-- spark gap: Spark has no PREPARE

-- name: prepare with named parameters
PREPARE named AS SELECT id, predict('churn', *, plan := $plan) AS p FROM customers WHERE id < $n; EXECUTE named(n := 50, plan := 'max')
-- rows:
SELECT * REPLACE ('max' AS plan) FROM customers WHERE id < 50
-- expect:
SELECT id, p FROM given
-- spark gap: Spark has no PREPARE

-- name: prepare an insert
PREPARE keep AS INSERT INTO out SELECT id, predict('risk', *) FROM customers WHERE plan = ?; EXECUTE keep('pro'); EXECUTE keep('max'); DEALLOCATE keep; FROM out
-- setup:
CREATE TABLE out (id INTEGER, r BIGINT)
-- expect:
SELECT id, r FROM scored WHERE plan IN ('pro', 'max')
-- spark gap: Spark has no PREPARE

-- name: prepare an update with a call on both sides
PREPARE up AS UPDATE customers SET charges = predict('value', *) + $1 WHERE predict('churn', *) = $2; EXECUTE up(1000, 'no')
-- expect:
UPDATE customers SET charges = s.v + 1000 FROM scored s WHERE s.id = customers.id AND s.p = 'no'
-- then:
SELECT id, charges FROM customers
-- spark gap: Spark has no PREPARE

-- name: prepare twice under one name
PREPARE x AS SELECT predict('value/1', *) AS v FROM customers; DEALLOCATE x; PREPARE x AS SELECT id, predict('value', *) AS v FROM customers; EXECUTE x
-- expect:
SELECT id, v FROM scored
-- spark gap: Spark has no PREPARE

-- name: explain leaves everything as it was
EXPLAIN SELECT predict('churn', *) FROM customers; EXPLAIN ANALYZE SELECT predict('value', *) FROM customers; SELECT id, predict('churn', *) AS p FROM customers
-- expect:
SELECT id, p FROM scored
-- spark:
EXPLAIN SELECT predict('churn', *) FROM customers; EXPLAIN COST SELECT predict('value', *) FROM customers; SELECT id, predict('churn', *) AS p FROM customers

-- name: explain of an update changes nothing
EXPLAIN UPDATE customers SET charges = predict('value', *); SELECT id, charges FROM customers
-- expect:
SELECT id, charges FROM scored
-- spark:
EXPLAIN INSERT INTO customers BY NAME SELECT id, predict('value', *) AS charges FROM customers; SELECT id, charges FROM customers

-- name: a describe of a query and its columns
SELECT column_name, column_type FROM (DESCRIBE SELECT id, predict('churn', *) AS p, predict_proba('loyal', *) AS lp FROM customers)
-- expect:
SELECT * FROM (VALUES ('id', 'INTEGER'), ('p', 'VARCHAR'), ('lp', 'MAP(BOOLEAN, DOUBLE)')) t(column_name, column_type)
-- spark gap: Spark has no DESCRIBE inside a query, and other names of types

-- name: show models as a relation of texts
CREATE TABLE before AS SELECT 1 AS a; SHOW MODELS LIKE 'chu%'; SELECT predict('churn', 1, 2, 'pro', 'north') = predict('churn/1', 1, 2, 'pro', 'north') AS same
-- expect:
SELECT true AS same

-- name: a cursor of statements in a transaction that sees its own rows
BEGIN; INSERT INTO customers (id, tenure, charges, plan, region, visits) VALUES (500, 5, 50, 'pro', 'north', 3); CREATE TABLE seen AS SELECT id, predict('churn', *) AS p FROM customers WHERE id = 500; COMMIT; FROM seen
-- rows:
SELECT 500::INTEGER AS id, 5.0 AS tenure, 50.0 AS charges, 'pro' AS plan, 'north' AS region
-- expect:
SELECT id, p FROM given
-- spark gap: Spark has no transactions
