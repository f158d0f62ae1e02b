-- name: a table of an attached database
SELECT id, predict('churn', *) AS p FROM other.customers
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.customers AS SELECT * FROM customers WHERE id < 20
-- expect:
SELECT id, p FROM scored WHERE id < 20
-- spark setup:
DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other; CREATE TABLE other.customers AS SELECT * FROM customers WHERE id < 20

-- name: a join across databases
SELECT c.id, predict('value', charges := c.charges, visits := o.visits) AS v FROM customers c JOIN other.main.rest o ON o.id = c.id
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.rest AS SELECT id, visits FROM customers WHERE plan = 'pro'
-- expect:
SELECT id, v FROM scored WHERE plan = 'pro'
-- spark:
SELECT c.id, predict('value', charges := c.charges, visits := o.visits) AS v FROM customers c JOIN spark_catalog.other.rest o ON o.id = c.id
-- spark setup:
DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other; CREATE TABLE other.rest AS SELECT id, visits FROM customers WHERE plan = 'pro'

-- name: the same name in two databases
SELECT a.id, predict('churn', a.*) AS p, predict('churn', b.*) AS other_p FROM customers a JOIN other.customers b USING (id)
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.customers AS SELECT * REPLACE ('max' AS plan) FROM customers
-- rows:
SELECT * REPLACE ('max' AS plan) FROM customers
-- expect:
SELECT id, s.p, g.p AS other_p FROM scored s JOIN given g USING (id)
-- spark setup:
DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other; CREATE TABLE other.customers AS SELECT * EXCEPT (plan), 'max' AS plan FROM customers

-- name: scores written to an attached database
CREATE TABLE other.labels AS SELECT id, predict('risk', *) AS r FROM customers; INSERT INTO other.labels SELECT -id - 1, predict('risk', *) FROM customers; SELECT * FROM other.labels
-- setup:
ATTACH ':memory:' AS other
-- expect:
SELECT id, r FROM scored UNION ALL SELECT -id - 1, r FROM scored
-- spark setup:
DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other

-- name: a model in an attached database
EXPORT MODEL value TO 'v.sqlml'; ATTACH 'other.duckdb' AS other; CREATE MODEL other.there FROM 'v.sqlml'; SELECT id, predict('other.there', *) AS v FROM customers
-- expect:
SELECT id, v FROM scored
-- spark gap: Spark has no ATTACH, and its session's models are in one directory

-- name: models of one name in two databases
EXPORT MODEL "value/1" TO 'v.sqlml'; ATTACH 'other.duckdb' AS other; CREATE MODEL other.value FROM 'v.sqlml'; SELECT id, predict('other.value', *) AS v1, predict('value', *) AS v FROM customers
-- expect:
SELECT id, v1, v FROM scored
-- spark gap: Spark has no ATTACH, and its session's models are in one directory

-- name: a database with a name in quotes
SELECT t.id, predict('loyal', t.*) AS l FROM "Alte Daten".main."Kunden" t
-- setup:
ATTACH ':memory:' AS "Alte Daten"; CREATE TABLE "Alte Daten"."Kunden" AS FROM customers
-- expect:
SELECT id, l FROM scored
-- spark:
SELECT t.id, predict('loyal', t.*) AS l FROM spark_catalog.`Alte_Daten`.`Kunden` t
-- spark setup:
DROP SCHEMA IF EXISTS `Alte_Daten` CASCADE; CREATE SCHEMA `Alte_Daten`; CREATE TABLE `Alte_Daten`.`Kunden` AS SELECT * FROM customers

-- name: another database is used, the model is of the first
USE other; SELECT id, predict('shop.value', *) AS v FROM things
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.things AS SELECT id, charges, visits FROM customers
-- expect:
SELECT id, v FROM scored
-- spark:
USE other; CREATE TABLE corpus.found AS SELECT id, predict('value', *) AS v FROM things; USE corpus; SELECT * FROM found
-- spark setup:
DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other; CREATE TABLE other.things AS SELECT id, charges, visits FROM customers

-- name: a view of another database over a table of its own
CREATE VIEW other.labels AS SELECT id, predict('churn', *) AS p FROM other.customers; FROM other.labels
-- setup:
ATTACH ':memory:' AS other; CREATE TABLE other.customers AS FROM customers WHERE id > 90
-- expect:
SELECT id, p FROM scored WHERE id > 90
-- spark:
CREATE TEMPORARY VIEW labels AS SELECT id, predict('churn', *) AS p FROM other.customers; SELECT * FROM labels
-- spark setup:
DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other; CREATE TABLE other.customers AS SELECT * FROM customers WHERE id > 90

-- name: a file of values
COPY customers TO 'c.csv' (HEADER); SELECT id, predict('churn', *) AS p FROM 'c.csv'
-- expect:
SELECT id::BIGINT AS id, p FROM scored
-- spark:
INSERT OVERWRITE DIRECTORY 'c.csv' USING csv OPTIONS (header true) SELECT * FROM customers;
SELECT id, predict('churn', *) AS p FROM csv.`c.csv` WITH (header true, inferSchema true)

-- name: a parquet file by its function
COPY customers TO 'c.parquet'; SELECT id, predict('risk', *) AS r, predict('churn', *) AS p FROM read_parquet('c.parquet', filename := true)
-- expect:
SELECT id, r, p FROM scored
-- spark:
INSERT OVERWRITE DIRECTORY 'c.parquet' USING parquet SELECT * FROM customers;
SELECT id, predict('risk', *) AS r, predict('churn', *) AS p FROM (SELECT *, _metadata.file_name AS filename FROM parquet.`c.parquet`)

-- name: a csv file with types of its own
COPY (SELECT id, charges, visits FROM customers) TO 'c.csv' (HEADER, DELIMITER ';'); SELECT id, predict('value', c.*) AS v FROM read_csv('c.csv', delim = ';', types = {'id': 'INTEGER', 'charges': 'DOUBLE', 'visits': 'INTEGER'}) AS c
-- expect:
SELECT id, v FROM scored
-- spark:
INSERT OVERWRITE DIRECTORY 'c.csv' USING csv OPTIONS (header true, delimiter ';') SELECT id, charges, visits FROM customers;
CREATE TEMPORARY VIEW c (id INT, charges DOUBLE, visits INT) USING csv OPTIONS (path 'c.csv', header true, delimiter ';');
SELECT id, predict('value', c.*) AS v FROM c

-- name: a json file
COPY (SELECT id, tenure, visits FROM customers) TO 'c.json'; SELECT id, predict('loyal', *) AS l FROM 'c.json'
-- expect:
SELECT id::BIGINT AS id, l FROM scored
-- spark:
INSERT OVERWRITE DIRECTORY 'c.json' USING json SELECT id, tenure, visits FROM customers; SELECT id, predict('loyal', *) AS l FROM json.`c.json`

-- name: partitions of files
COPY customers TO 'parts' (FORMAT parquet, PARTITION_BY (plan)); SELECT id, predict('churn', *) AS p FROM read_parquet('parts/*/*.parquet', hive_partitioning := true)
-- expect:
SELECT id, p FROM scored
-- spark:
INSERT OVERWRITE DIRECTORY 'parts/plan=basic' USING parquet SELECT * EXCEPT (plan) FROM customers WHERE plan = 'basic';
INSERT OVERWRITE DIRECTORY 'parts/plan=pro' USING parquet SELECT * EXCEPT (plan) FROM customers WHERE plan = 'pro';
INSERT OVERWRITE DIRECTORY 'parts/plan=max' USING parquet SELECT * EXCEPT (plan) FROM customers WHERE plan = 'max';
SELECT id, predict('churn', *) AS p FROM parquet.`parts`
