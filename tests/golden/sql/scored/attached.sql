-- name: a table of an attached database
SELECT id, predict('churn', *) AS p FROM other.customers
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.customers AS SELECT * FROM customers WHERE id < 20
-- expect:
SELECT id, p FROM scored WHERE id < 20

-- name: a join across databases
SELECT c.id, predict('value', charges := c.charges, visits := o.visits) AS v FROM customers c JOIN other.main.rest o ON o.id = c.id
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.rest AS SELECT id, visits FROM customers WHERE plan = 'pro'
-- expect:
SELECT id, v FROM scored WHERE plan = 'pro'

-- name: the same name in two databases
SELECT a.id, predict('churn', a.*) AS p, predict('churn', b.*) AS other_p FROM customers a JOIN other.customers b USING (id)
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.customers AS SELECT * REPLACE ('max' AS plan) FROM customers
-- rows:
SELECT * REPLACE ('max' AS plan) FROM customers
-- expect:
SELECT id, s.p, g.p AS other_p FROM scored s JOIN given g USING (id)

-- name: scores written to an attached database
CREATE TABLE other.labels AS SELECT id, predict('risk', *) AS r FROM customers; INSERT INTO other.labels SELECT -id - 1, predict('risk', *) FROM customers; SELECT * FROM other.labels
-- setup:
ATTACH ':memory:' AS other
-- expect:
SELECT id, r FROM scored UNION ALL SELECT -id - 1, r FROM scored

-- name: a model in an attached database
EXPORT MODEL value TO 'v.sqlml'; ATTACH 'other.duckdb' AS other; CREATE MODEL other.there FROM 'v.sqlml'; SELECT id, predict('other.there', *) AS v FROM customers
-- expect:
SELECT id, v FROM scored

-- name: models of one name in two databases
EXPORT MODEL "value/1" TO 'v.sqlml'; ATTACH 'other.duckdb' AS other; CREATE MODEL other.value FROM 'v.sqlml'; SELECT id, predict('other.value', *) AS v1, predict('value', *) AS v FROM customers
-- expect:
SELECT id, v1, v FROM scored

-- name: a database with a name in quotes
SELECT t.id, predict('loyal', t.*) AS l FROM "Alte Daten".main."Kunden" t
-- setup:
ATTACH ':memory:' AS "Alte Daten"; CREATE TABLE "Alte Daten"."Kunden" AS FROM customers
-- expect:
SELECT id, l FROM scored

-- name: another database is used, the model is of the first
USE other; SELECT id, predict('shop.value', *) AS v FROM things
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.things AS SELECT id, charges, visits FROM customers
-- expect:
SELECT id, v FROM scored

-- name: a view of another database over a table of its own
CREATE VIEW other.labels AS SELECT id, predict('churn', *) AS p FROM other.customers; FROM other.labels
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.customers AS FROM customers WHERE id > 90
-- expect:
SELECT id, p FROM scored WHERE id > 90

-- name: a file of values
COPY customers TO 'c.csv' (HEADER); SELECT id, predict('churn', *) AS p FROM 'c.csv'
-- expect:
SELECT id::BIGINT AS id, p FROM scored

-- name: a parquet file by its function
COPY customers TO 'c.parquet'; SELECT id, predict('risk', *) AS r, predict('churn', *) AS p FROM read_parquet('c.parquet', filename := true)
-- expect:
SELECT id, r, p FROM scored

-- name: a csv file with types of its own
COPY (SELECT id, charges, visits FROM customers) TO 'c.csv' (HEADER, DELIMITER ';'); SELECT id, predict('value', c.*) AS v FROM read_csv('c.csv', delim = ';', types = {'id': 'INTEGER', 'charges': 'DOUBLE', 'visits': 'INTEGER'}) AS c
-- expect:
SELECT id, v FROM scored

-- name: a json file
COPY (SELECT id, tenure, visits FROM customers) TO 'c.json'; SELECT id, predict('loyal', *) AS l FROM 'c.json'
-- expect:
SELECT id::BIGINT AS id, l FROM scored

-- name: partitions of files
COPY customers TO 'parts' (FORMAT parquet, PARTITION_BY (plan)); SELECT id, predict('churn', *) AS p FROM read_parquet('parts/*/*.parquet', hive_partitioning := true)
-- expect:
SELECT id, p FROM scored
