-- name: a user's macro predict of columns
SELECT id, predict(plan, region) AS x FROM customers
-- setup:
CREATE MACRO predict(a, b) AS concat(a, '-', b)
-- expect:
SELECT id, concat(plan, '-', region) AS x FROM customers
-- spark setup:
CREATE OR REPLACE FUNCTION predict(a STRING, b STRING) RETURNS STRING RETURN concat(a, '-', coalesce(b, ''))

-- name: a user's macro predict of strings that are no model
SELECT id, predict('x', plan) AS x FROM customers
-- setup:
CREATE MACRO predict(a, b) AS a || b
-- expect:
SELECT id, 'x' || plan AS x FROM customers
-- spark setup:
CREATE OR REPLACE FUNCTION predict(a STRING, b STRING) RETURNS STRING RETURN a || b

-- name: a user's macro and a model in one query
SELECT id, predict('nobody', plan) AS x, predict('churn', *) AS p FROM customers
-- setup:
CREATE MACRO predict(a, b) AS a || b
-- expect:
SELECT id, 'nobody' || plan AS x, p FROM scored
-- spark setup:
CREATE OR REPLACE FUNCTION predict(a STRING, b STRING) RETURNS STRING RETURN a || b

-- name: a user's macro around a model's call
SELECT id, transform(predict('churn', *)) AS x FROM customers
-- setup:
CREATE MACRO transform(a) AS upper(a)
-- expect:
SELECT id, upper(p) AS x FROM scored
-- spark:
SELECT id, corpus.transform(predict('churn', *)) AS x FROM customers
-- spark setup:
CREATE OR REPLACE FUNCTION corpus.transform(a STRING) RETURNS STRING RETURN upper(a)

-- name: a user's table macro predict
SELECT * FROM predict(4) ORDER BY n
-- setup:
CREATE MACRO predict(k) AS TABLE SELECT range AS n FROM range(k)
-- expect:
SELECT range AS n FROM range(4) ORDER BY n
-- spark setup:
CREATE OR REPLACE FUNCTION predict(k INT) RETURNS TABLE (n BIGINT) RETURN SELECT explode(sequence(0L, k - 1L))

-- name: a user's table macro beside a model
SELECT n, predict('value', charges := n, visits := 1) AS v FROM predict(4)
-- setup:
CREATE MACRO predict(k) AS TABLE SELECT range AS n FROM range(k)
-- rows:
SELECT range AS n, range AS charges, 1 AS visits FROM range(4)
-- expect:
SELECT n, v FROM given
-- spark setup:
CREATE OR REPLACE FUNCTION predict(k INT) RETURNS TABLE (n BIGINT) RETURN SELECT explode(sequence(0L, k - 1L))

-- name: a user's function in a schema
SELECT id, mine.predict('churn', plan) AS x, predict('churn', *) AS p FROM customers
-- setup:
CREATE SCHEMA mine; CREATE MACRO mine.predict(a, b) AS a || '/' || b
-- expect:
SELECT id, 'churn/' || plan AS x, p FROM scored
-- spark setup:
DROP SCHEMA IF EXISTS mine CASCADE; CREATE SCHEMA mine; CREATE FUNCTION mine.predict(a STRING, b STRING) RETURNS STRING RETURN a || '/' || b

-- name: a table with columns predict and transform
SELECT predict, transform, predict_proba FROM t WHERE predict > 1
-- setup:
CREATE TABLE t AS SELECT range AS predict, 'a' AS transform, 0.5 AS predict_proba FROM range(4)
-- expect:
SELECT predict, transform, predict_proba FROM t WHERE predict > 1
-- spark setup:
CREATE TABLE t AS SELECT id AS predict, 'a' AS transform, 0.5 AS predict_proba FROM range(4)

-- name: a table named model
SELECT model.id, predict('churn', model.*) AS p FROM model
-- setup:
CREATE TABLE model AS FROM customers
-- expect:
SELECT id, p FROM scored

-- name: drop and describe of tables named model and models
DROP TABLE models; SELECT count(*) AS n FROM model
-- setup:
CREATE TABLE model AS FROM customers; CREATE TABLE models AS SELECT 1 AS a
-- expect:
DROP TABLE models; SELECT count(*) AS n FROM model
-- spark setup:
CREATE TABLE model AS SELECT * FROM customers; CREATE TABLE models AS SELECT 1 AS a

-- name: a user's macro in quotes
SELECT id, "predict"('churn', plan) AS x FROM customers
-- setup:
CREATE MACRO predict(a, b) AS a || '+' || b
-- expect:
SELECT id, 'churn+' || plan AS x FROM customers
-- spark:
SELECT id, `predict`('churn', plan) AS x FROM customers
-- spark setup:
CREATE OR REPLACE FUNCTION predict(a STRING, b STRING) RETURNS STRING RETURN a || '+' || b

-- name: a user's macro of a list of strings
SELECT id, transform([plan, region]) AS x, predict_score(id) AS y FROM customers
-- setup:
CREATE MACRO transform(a) AS len(a); CREATE MACRO predict_score(a) AS a * 2
-- expect:
SELECT id, 2::BIGINT AS x, id * 2 AS y FROM customers
-- spark:
SELECT id, corpus.transform(array(plan, region)) AS x, predict_score(id) AS y FROM customers
-- spark setup:
CREATE OR REPLACE FUNCTION corpus.transform(a ARRAY<STRING>) RETURNS BIGINT RETURN size(a); CREATE OR REPLACE FUNCTION predict_score(a INT) RETURNS INT RETURN a * 2

-- name: the engine's own list_transform and its short names
SELECT list_transform([1, 2], lambda x: x + 1) AS a, apply([1, 2], lambda x: x * 2) AS b, predict('value', 3, 4) AS v
-- rows:
SELECT 3 AS charges, 4 AS visits
-- expect:
SELECT [2, 3] AS a, [2, 4] AS b, v FROM given
-- spark:
SELECT transform(array(1, 2), x -> x + 1) AS a, transform(array(1, 2), x -> x * 2) AS b, predict('value', 3, 4) AS v

-- name: a definition named predict
WITH predict(k) AS (SELECT id FROM customers WHERE predict('churn', *) = 'yes') SELECT k FROM predict
-- expect:
SELECT id AS k FROM scored WHERE p = 'yes'

-- name: insert into a table named predict
INSERT INTO predict(a, b) SELECT id, predict('churn', *) FROM customers
-- setup:
CREATE TABLE predict (a INTEGER, b VARCHAR)
-- expect:
INSERT INTO predict(a, b) SELECT id, p FROM scored
-- then:
SELECT * FROM predict
-- spark setup:
CREATE TABLE predict (a INTEGER, b STRING)

-- name: create a table named transform with a column list
CREATE TABLE transform(predict INTEGER, model VARCHAR); INSERT INTO transform VALUES (1, 'predict(''a'', *)'); SELECT * FROM transform
-- expect:
CREATE TABLE transform(predict INTEGER, model VARCHAR); INSERT INTO transform VALUES (1, 'predict(''a'', *)'); SELECT * FROM transform
-- spark:
CREATE TABLE transform(predict INTEGER, model STRING); INSERT INTO transform VALUES (1, "predict('a', *)"); SELECT * FROM transform
