-- name: create table as, and insert
CREATE TABLE out AS SELECT id, predict('churn', *) AS p FROM customers WHERE id < 60; INSERT INTO out SELECT id, predict('churn', *) FROM customers WHERE id >= 60
-- expect:
CREATE TABLE out AS SELECT id, p FROM scored WHERE id < 60; INSERT INTO out SELECT id, p FROM scored WHERE id >= 60
-- then:
DESCRIBE out; FROM out
-- spark then:
DESCRIBE out; SELECT * FROM out

-- name: the types and names of a created table
CREATE TABLE out AS SELECT predict('risk', *), predict_proba('churn', *) AS pm, predict('loyal', *) AS l FROM customers
-- expect:
CREATE TABLE out AS SELECT r AS "predict('risk', *)", pm, l FROM scored
-- then:
DESCRIBE out
-- spark then:
SELECT name AS column_name, CASE type WHEN 'bigint' THEN 'BIGINT' WHEN 'map<string,double>' THEN 'MAP(VARCHAR, DOUBLE)' WHEN 'boolean' THEN 'BOOLEAN' END AS column_type, 'YES' AS `null`, NULL AS key, NULL AS `default`, NULL AS extra
FROM (SELECT typeof(any_value(`predict('risk', *)`)) AS `predict('risk', *)`, typeof(any_value(pm)) AS pm, typeof(any_value(l)) AS l FROM out) UNPIVOT (type FOR name IN (`predict('risk', *)`, pm, l))

-- name: create table as with names of columns
CREATE OR REPLACE TEMP TABLE out(a, b) AS FROM customers SELECT id, predict('value', *)
-- expect:
CREATE OR REPLACE TEMP TABLE out(a, b) AS FROM scored SELECT id, v
-- then:
FROM out
-- spark:
CREATE OR REPLACE TEMPORARY VIEW out(a, b) AS SELECT id, predict('value', *) FROM customers
-- spark then:
SELECT * FROM out

-- name: create table as without data
CREATE TABLE IF NOT EXISTS out AS SELECT id, predict_score('risk', *) AS rm FROM customers WITH NO DATA
-- expect:
CREATE TABLE IF NOT EXISTS out AS SELECT id, rm FROM scored WITH NO DATA
-- then:
DESCRIBE out
-- spark:
CREATE TABLE IF NOT EXISTS out AS SELECT id, predict_score('risk', *) AS rm FROM customers LIMIT 0
-- spark then:
SELECT name AS column_name, CASE type WHEN 'int' THEN 'INTEGER' WHEN 'array<double>' THEN 'DOUBLE[]' END AS column_type, 'YES' AS `null`, NULL AS key, NULL AS `default`, NULL AS extra
FROM (SELECT typeof(any_value(id)) AS id, typeof(any_value(rm)) AS rm FROM out) UNPIVOT (type FOR name IN (id, rm))

-- name: create table as in brackets, with a definition
CREATE TABLE out AS (WITH s AS (SELECT *, predict('churn', *) AS p FROM customers) SELECT p, count(*) AS n FROM s GROUP BY p)
-- expect:
CREATE TABLE out AS (SELECT p, count(*) AS n FROM scored GROUP BY p)
-- then:
FROM out

-- name: replace a table by its scored self
CREATE OR REPLACE TABLE customers AS SELECT * EXCLUDE (name, joined), predict('churn', *) AS p FROM customers
-- expect:
CREATE OR REPLACE TABLE customers AS SELECT id, tenure, charges, plan, region, visits, p FROM scored
-- then:
FROM customers
-- spark:
CREATE TABLE out AS SELECT * EXCEPT (name, joined), predict('churn', *) AS p FROM customers; DROP TABLE customers; ALTER TABLE out RENAME TO customers
-- spark then:
SELECT * FROM customers

-- name: insert by name
INSERT INTO customers BY NAME SELECT id + 1000 AS id, predict('churn', *) AS plan, predict('value', *) AS charges FROM customers WHERE id < 30
-- expect:
INSERT INTO customers BY NAME SELECT id + 1000 AS id, p AS plan, v AS charges FROM scored WHERE id < 30
-- then:
FROM customers WHERE id >= 1000
-- spark then:
SELECT * FROM customers WHERE id >= 1000

-- name: insert with a column list and returning
INSERT INTO customers (id, charges, visits) SELECT id + 1000, predict('value', *), visits FROM customers WHERE predict('loyal', *) RETURNING id, charges
-- expect:
INSERT INTO customers (id, charges, visits) SELECT id + 1000, v, visits FROM scored WHERE l RETURNING id, charges
-- then:
SELECT id, charges, visits FROM customers
-- spark:
INSERT INTO customers (id, charges, visits) SELECT id + 1000, predict('value', *), visits FROM customers WHERE predict('loyal', *)

-- name: returning scores what was inserted
INSERT INTO customers (id, tenure, charges, plan, region) VALUES (900, 3, 99.5, 'max', 'south'), (901, NULL, 20, 'pro', NULL) RETURNING id, predict('churn', *) AS p
-- rows:
SELECT * FROM (VALUES (900, 3.0, 99.5, 'max', 'south'), (901, NULL, 20, 'pro', NULL)) t(id, tenure, charges, plan, region)
-- expect:
SELECT id::INTEGER AS id, p FROM given
-- then:
SELECT count(*) > 119 AS n FROM customers
-- spark gap: Spark has no RETURNING

-- name: insert values that are calls
INSERT INTO out VALUES (1, predict('value', charges := 40, visits := 2)), (2, predict('value', 50.5, 3) + 1)
-- setup:
CREATE TABLE out (a INTEGER, v DOUBLE)
-- rows:
SELECT * FROM (VALUES (40.0, 2), (50.5, 3)) t(charges, visits)
-- expect:
INSERT INTO out SELECT row + 1, v + row FROM given
-- then:
FROM out
-- spark:
INSERT INTO out SELECT 1, predict('value', charges := 40, visits := 2) UNION ALL SELECT 2, predict('value', 50.5, 3) + 1
-- spark then:
SELECT * FROM out

-- name: insert or replace, and on conflict do nothing
INSERT OR REPLACE INTO out SELECT id, predict('churn', *) FROM customers WHERE id < 9; INSERT INTO out SELECT id, predict('risk', *)::VARCHAR FROM customers WHERE id < 12 ON CONFLICT DO NOTHING
-- setup:
CREATE TABLE out (id INTEGER PRIMARY KEY, label VARCHAR); INSERT INTO out VALUES (3, 'old'), (50, 'old')
-- expect:
INSERT OR REPLACE INTO out SELECT id, p FROM scored WHERE id < 9; INSERT INTO out SELECT id, r::VARCHAR FROM scored WHERE id < 12 ON CONFLICT DO NOTHING
-- then:
FROM out
-- spark gap: Spark has no ON CONFLICT

-- name: on conflict update with the excluded row
INSERT INTO out SELECT id, charges, visits, 0 FROM customers ON CONFLICT (id) DO UPDATE SET v = predict('value', charges := excluded.charges, visits := out.visits) WHERE out.id > 3
-- setup:
CREATE TABLE out (id INTEGER PRIMARY KEY, charges DOUBLE, visits INTEGER, v DOUBLE); INSERT INTO out SELECT id, 5, 7, -1 FROM customers WHERE id < 9
-- rows:
SELECT id, charges, 7 AS visits FROM customers
-- expect:
INSERT INTO out SELECT id, charges, visits, 0 FROM customers WHERE id > 8; UPDATE out SET v = given.v FROM given WHERE given.id = out.id AND out.id BETWEEN 4 AND 8
-- then:
SELECT id, v FROM out
-- spark gap: Spark has no ON CONFLICT

-- name: on conflict update of a table with another name
INSERT INTO main."out" AS "o 1" (id, charges, visits, v) SELECT id, charges, visits, 0 FROM customers ON CONFLICT (id) DO UPDATE SET v = predict('value', charges := excluded.charges, visits := "o 1".visits) WHERE "o 1".id > 3
-- setup:
CREATE TABLE out (id INTEGER PRIMARY KEY, charges DOUBLE, visits INTEGER, v DOUBLE); INSERT INTO out SELECT id, 5, 7, -1 FROM customers WHERE id < 9
-- rows:
SELECT id, charges, 7 AS visits FROM customers
-- expect:
INSERT INTO out SELECT id, charges, visits, 0 FROM customers WHERE id > 8; UPDATE out SET v = given.v FROM given WHERE given.id = out.id AND out.id BETWEEN 4 AND 8
-- then:
SELECT id, v FROM out
-- spark gap: Spark has no ON CONFLICT

-- name: insert from a definition
INSERT INTO out WITH s AS (FROM customers WHERE plan = 'pro') SELECT id, predict('churn', *) FROM s
-- setup:
CREATE TABLE out (id INTEGER, p VARCHAR)
-- expect:
INSERT INTO out SELECT id, p FROM scored WHERE plan = 'pro'
-- then:
FROM out
-- spark:
INSERT INTO out WITH s AS (SELECT * FROM customers WHERE plan = 'pro') SELECT id, predict('churn', *) FROM s
-- spark setup:
CREATE TABLE out (id INT, p STRING)
-- spark then:
SELECT * FROM out

-- name: a definition before insert
WITH s AS (SELECT id, predict('churn', *) AS p FROM customers) INSERT INTO out SELECT id, p FROM s WHERE p = 'yes'
-- setup:
CREATE TABLE out (id INTEGER, p VARCHAR)
-- expect:
INSERT INTO out SELECT id, p FROM scored WHERE p = 'yes'
-- then:
FROM out
-- spark setup:
CREATE TABLE out (id INT, p STRING)
-- spark then:
SELECT * FROM out

-- name: update by a label
UPDATE customers SET plan = predict('churn', *), charges = charges + 1 WHERE predict_proba('churn', *, class := 'yes') >= 0.3
-- expect:
UPDATE customers SET plan = s.p, charges = s.charges + 1 FROM scored s WHERE s.id = customers.id AND q >= 0.3
-- then:
SELECT id, plan, charges FROM customers
-- spark gap: Spark's own tables take no UPDATE

-- name: update from another table
UPDATE customers AS c SET charges = predict('value', charges := c.charges, visits := l.pages) FROM (SELECT customer_id, max(pages) AS pages FROM logins GROUP BY ALL) AS l WHERE l.customer_id = c.id
-- rows:
SELECT c.id, c.charges, l.pages AS visits FROM customers c, (SELECT customer_id, max(pages) AS pages FROM logins GROUP BY ALL) l WHERE l.customer_id = c.id
-- expect:
UPDATE customers SET charges = v FROM given WHERE given.id = customers.id
-- then:
SELECT id, charges FROM customers
-- spark gap: Spark's own tables take no UPDATE

-- name: update from a scored subquery
UPDATE customers SET name = s.p FROM (SELECT id, predict('churn', *) AS p FROM customers) s WHERE s.id = customers.id
-- expect:
UPDATE customers SET name = s.p FROM scored s WHERE s.id = customers.id
-- then:
SELECT id, name FROM customers
-- spark gap: Spark's own tables take no UPDATE

-- name: update with returning
UPDATE customers SET tenure = 1 WHERE plan = 'max' RETURNING id, predict('risk', *) AS r
-- rows:
SELECT id, 1.0 AS tenure, charges, visits FROM customers WHERE plan = 'max'
-- expect:
SELECT id, r FROM given
-- then:
SELECT 1 AS done
-- spark gap: Spark's own tables take no UPDATE

-- name: update with a correlated subquery
UPDATE customers SET charges = (SELECT max(predict('value', i.*)) FROM customers i WHERE i.plan = customers.plan)
-- expect:
UPDATE customers SET charges = (SELECT max(i.v) FROM scored i WHERE i.plan = customers.plan)
-- then:
SELECT id, charges FROM customers
-- spark gap: Spark's own tables take no UPDATE

-- name: a definition before update
WITH top AS (SELECT id FROM customers ORDER BY predict('value', *) DESC, id LIMIT 10) UPDATE customers SET plan = 'best' WHERE id IN (FROM top)
-- expect:
UPDATE customers SET plan = 'best' WHERE id IN (SELECT id FROM scored ORDER BY v DESC, id LIMIT 10)
-- then:
SELECT id, plan FROM customers
-- spark gap: Spark's own tables take no UPDATE

-- name: delete by a label, returning it
DELETE FROM customers WHERE predict('churn', *) = 'yes' RETURNING id, predict('churn', *) AS p
-- expect:
SELECT id, p FROM scored WHERE p = 'yes'
-- then:
SELECT count(*) > 0 AS n FROM customers
-- spark gap: Spark's own tables take no DELETE

-- name: delete using another table
DELETE FROM customers AS c USING logins l WHERE l.customer_id = c.id AND l.pages > 4 AND predict('loyal', c.*)
-- expect:
DELETE FROM customers WHERE id IN (SELECT s.id FROM scored s JOIN logins l ON l.customer_id = s.id WHERE l.pages > 4 AND s.l)
-- then:
SELECT id FROM customers
-- spark gap: Spark's own tables take no DELETE

-- name: delete by a subquery of scores
DELETE FROM logins WHERE customer_id IN (SELECT id FROM customers WHERE predict('risk', *) = 1)
-- expect:
DELETE FROM logins WHERE customer_id IN (SELECT id FROM scored WHERE r = 1)
-- then:
FROM logins
-- spark gap: Spark's own tables take no DELETE

-- name: merge of two tables
MERGE INTO out USING customers AS c ON out.id = c.id
WHEN MATCHED AND predict('churn', c.*) = 'yes' THEN UPDATE SET v = predict('value', c.*)
WHEN MATCHED THEN DELETE
WHEN NOT MATCHED THEN INSERT (id, v) VALUES (c.id, predict('value/1', c.*))
-- setup:
CREATE TABLE out AS SELECT id, 0.0::DOUBLE AS v FROM customers WHERE id % 2 = 0
-- expect:
CREATE OR REPLACE TABLE out AS SELECT id, CASE WHEN id % 2 = 0 THEN v ELSE v1 END AS v FROM scored WHERE id % 2 = 1 OR p = 'yes'
-- then:
FROM out
-- spark gap: Spark's own tables take no MERGE

-- name: merge that ends in an error for a label
MERGE INTO out USING customers AS c ON out.id = c.id
WHEN MATCHED THEN UPDATE SET v = predict('value', c.*)
WHEN NOT MATCHED AND predict('churn', c.*) = 'never' THEN ERROR
WHEN NOT MATCHED THEN DO NOTHING
-- setup:
CREATE TABLE out AS SELECT id, 0.0::DOUBLE AS v FROM customers WHERE id % 2 = 0
-- expect:
CREATE OR REPLACE TABLE out AS SELECT id, v FROM scored WHERE id % 2 = 0
-- then:
FROM out
-- spark gap: Spark's own tables take no MERGE

-- name: merge of a scored query, with returning
MERGE INTO out USING (SELECT id, predict('risk', *) AS r FROM customers) AS s USING (id)
WHEN MATCHED THEN UPDATE SET r = s.r WHEN NOT MATCHED BY SOURCE THEN DELETE RETURNING merge_action, id, r
-- setup:
CREATE TABLE out AS SELECT id, -1::BIGINT AS r FROM customers WHERE id > 100; INSERT INTO out VALUES (999, -5)
-- expect:
SELECT 'UPDATE' AS merge_action, id, r FROM scored WHERE id > 100 UNION ALL SELECT 'DELETE', 999, -5
-- then:
SELECT 1 AS done
-- spark gap: Spark's own tables take no MERGE

-- name: alter a column by a call
ALTER TABLE customers ALTER COLUMN charges SET DATA TYPE DOUBLE USING predict('value', charges, visits)
-- expect:
UPDATE customers SET charges = s.v FROM scored s WHERE s.id = customers.id
-- then:
SELECT id, charges FROM customers
-- spark gap: Spark's ALTER COLUMN has no USING

-- name: an enum type of all labels
CREATE TYPE labels AS ENUM (SELECT DISTINCT predict('churn', *) FROM customers ORDER BY ALL); SELECT id, predict('churn', *)::labels AS p FROM customers
-- expect:
CREATE TYPE labels AS ENUM (SELECT DISTINCT p FROM scored ORDER BY ALL); SELECT id, p::labels AS p FROM scored
-- spark gap: Spark has no ENUM

-- name: an added column, filled by an update
ALTER TABLE customers ADD COLUMN label VARCHAR; UPDATE customers SET label = predict('churn', *); SELECT id, label, predict('churn', * EXCLUDE label) AS p FROM customers
-- expect:
SELECT id, p AS label, p FROM scored
-- spark gap: Spark's own tables take no UPDATE

-- name: on conflict update of a model that takes missing values
INSERT INTO out SELECT id, charges, visits, 0 FROM customers ON CONFLICT (id) DO UPDATE SET r = predict('risk', tenure := 12, charges := excluded.charges, visits := out.visits)
-- setup:
CREATE TABLE out (id INTEGER PRIMARY KEY, charges DOUBLE, visits INTEGER, r BIGINT); INSERT INTO out SELECT id, 5, 7, -1 FROM customers WHERE id < 9
-- rows:
SELECT id, 12.0 AS tenure, charges, 7 AS visits FROM customers
-- expect:
INSERT INTO out SELECT id, charges, visits, 0 FROM customers WHERE id > 8; UPDATE out SET r = given.r FROM given WHERE given.id = out.id AND out.id < 9
-- then:
SELECT id, r FROM out
-- spark gap: Spark has no ON CONFLICT

-- name: merge with columns of the target as features
MERGE INTO out USING customers AS c ON out.id = c.id
WHEN MATCHED THEN UPDATE SET r = predict('risk', tenure := out.tenure, charges := c.charges, visits := c.visits)
WHEN NOT MATCHED BY TARGET THEN INSERT (id, tenure) VALUES (c.id, c.tenure)
-- setup:
CREATE TABLE out AS SELECT id, 50.0 AS tenure, -1::BIGINT AS r FROM customers WHERE id < 30
-- rows:
SELECT id, 50.0 AS tenure, charges, visits FROM customers WHERE id < 30
-- expect:
UPDATE out SET r = given.r FROM given WHERE given.id = out.id
-- then:
SELECT id, r FROM out WHERE id < 30
-- spark gap: Spark's own tables take no MERGE

-- name: create table as from-first, filtered by a call
CREATE TABLE risky AS FROM customers WHERE predict('churn', *) = 'yes'
-- expect:
CREATE TABLE risky AS SELECT id, name, tenure, charges, plan, region, visits, joined FROM scored WHERE p = 'yes'
-- then:
FROM risky
-- spark:
CREATE TABLE risky AS SELECT * FROM customers WHERE predict('churn', *) = 'yes'
-- spark then:
SELECT * FROM risky

-- name: delete by rowids that a call finds
DELETE FROM customers WHERE rowid IN (SELECT rowid FROM customers WHERE predict('risk', *) = 2 LIMIT 1000)
-- expect:
DELETE FROM customers WHERE id IN (SELECT id FROM scored WHERE r = 2)
-- then:
SELECT id FROM customers
-- spark gap: Spark's own tables take no DELETE

-- name: update a column that is called set
UPDATE t SET set = predict('value', charges := set, visits := visits) WHERE set > 40
-- setup:
CREATE TABLE t AS SELECT id, charges AS set, visits FROM customers
-- expect:
UPDATE t SET set = v FROM scored s WHERE s.id = t.id AND set > 40
-- then:
FROM t
-- spark gap: Spark's own tables take no UPDATE
