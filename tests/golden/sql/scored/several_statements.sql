-- name: a statement without models first
CREATE TABLE few AS FROM customers WHERE id < 10; SELECT id, predict('churn', *) AS p FROM few;
-- expect:
CREATE TABLE few AS FROM scored WHERE id < 10; SELECT id, p FROM few
-- then:
SELECT count(*) AS n FROM few
-- spark:
CREATE TABLE few AS SELECT * FROM customers WHERE id < 10; SELECT id, predict('churn', *) AS p FROM few;

-- name: a statement with models first
CREATE TABLE labels AS SELECT id, predict('risk', *) AS r FROM customers; SELECT r, count(*) AS n FROM labels GROUP BY r
-- expect:
CREATE TABLE labels AS SELECT id, r FROM scored; SELECT r, count(*) AS n FROM labels GROUP BY r

-- name: semicolons without statements between
;;SELECT 1 AS a;; SELECT id, predict('churn', *) AS p FROM customers;;
-- expect:
SELECT id, p FROM scored

-- name: the second of two calls another model
SELECT predict('value', *) AS v FROM customers; SELECT predict('loyal', *) AS l FROM customers
-- expect:
SELECT l FROM scored

-- name: a transaction that is rolled back
BEGIN; UPDATE customers SET charges = predict('value', *); ROLLBACK; SELECT id, charges, predict('value', *) AS v FROM customers
-- expect:
SELECT id, charges, v FROM scored
-- spark gap: Spark has no transactions

-- name: a transaction that is committed
BEGIN TRANSACTION; DELETE FROM customers WHERE predict('churn', *) = 'yes'; COMMIT; SELECT id, predict('churn', *) AS p FROM customers
-- expect:
SELECT id, p FROM scored WHERE p = 'no'
-- spark gap: Spark has no transactions

-- name: a variable between two statements
SET VARIABLE least = (SELECT avg(predict('value', *)) FROM customers); SELECT id FROM customers WHERE predict('value', *) > getvariable('least')
-- expect:
SELECT id FROM scored WHERE v > (SELECT avg(v) FROM scored)
-- spark:
DECLARE OR REPLACE VARIABLE least DOUBLE; SET VARIABLE least = (SELECT avg(predict('value', *)) FROM customers); SELECT id FROM customers WHERE predict('value', *) > least

-- name: a setting, a pragma and a call
SET default_null_order = 'nulls_first'; PRAGMA enable_object_cache; SELECT region, predict('churn', *) AS p, id FROM customers ORDER BY region, id
-- expect:
SELECT region, p, id FROM scored ORDER BY region NULLS FIRST, id
-- spark:
SET spark.sql.session.timeZone = UTC; REFRESH TABLE customers; SELECT region, predict('churn', *) AS p, id FROM customers ORDER BY region, id

-- name: parameters go to the last statement
-- parameters: [40]
CREATE TEMP TABLE young AS SELECT * FROM customers WHERE predict('loyal', *); SELECT id FROM young WHERE id > ?
-- expect:
SELECT id FROM scored WHERE l AND id > 40
-- spark:
CREATE TEMPORARY VIEW young AS SELECT * FROM customers WHERE predict('loyal', *); SELECT id FROM young WHERE id > ?

-- name: a comment between statements
SELECT 1 AS a; -- then; predict('x', *)
/* and; */ SELECT id, predict('churn', *) AS p FROM customers
-- expect:
SELECT id, p FROM scored

-- name: a model made, used and dropped in one string
EXPORT MODEL value TO 'value.sqlml'; CREATE MODEL copied FROM 'value.sqlml'; CREATE TABLE out AS SELECT id, predict('copied', *) AS v FROM customers; DROP MODEL copied; FROM out
-- expect:
CREATE TABLE out AS SELECT id, v FROM scored; FROM out

-- name: another schema is used
CREATE SCHEMA s2; CREATE TABLE s2.customers AS SELECT * REPLACE (charges * 2 AS charges) FROM customers; USE s2; SELECT id, predict('value', *) AS v FROM customers
-- rows:
SELECT id, charges * 2 AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given
-- spark:
CREATE SCHEMA s2; CREATE TABLE s2.customers AS SELECT * EXCEPT (charges), charges * 2 AS charges FROM customers; USE s2;
CREATE TABLE corpus.found AS SELECT id, predict('value', *) AS v FROM customers; USE corpus; SELECT * FROM found
-- spark setup:
DROP SCHEMA IF EXISTS s2 CASCADE
