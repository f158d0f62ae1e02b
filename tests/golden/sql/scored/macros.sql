-- name: a macro that calls a model
CREATE MACRO worth(c, n) AS predict('value', charges := c, visits := n);
SELECT id, worth(charges, visits) AS v FROM customers
-- expect:
CREATE MACRO worth(c, n) AS 1;
SELECT id, v FROM scored
-- spark:
CREATE OR REPLACE TEMPORARY FUNCTION worth(c DOUBLE, n INT) RETURNS DOUBLE RETURN predict('value', charges := c, visits := n);
SELECT id, worth(charges, visits) AS v FROM customers

-- name: a macro with strings as features
CREATE TEMP MACRO leaves(t, c, w, r) AS predict('churn', t, c, w, r);
SELECT id, leaves(tenure, charges, plan, region) AS p FROM customers
-- expect:
CREATE TEMP MACRO leaves(t) AS 1;
SELECT id, p FROM scored
-- spark:
CREATE OR REPLACE TEMPORARY FUNCTION leaves(t DOUBLE, c DOUBLE, w STRING, r STRING) RETURNS STRING RETURN predict('churn', t, c, w, r);
SELECT id, leaves(tenure, charges, plan, region) AS p FROM customers

-- name: a macro with a default
CREATE OR REPLACE FUNCTION worth(c, n := 3) AS predict('value', charges := c, visits := n) + 1;
SELECT id, worth(charges) AS a, worth(charges, n := visits) AS b FROM customers
-- rows:
SELECT id, charges, 3 AS visits FROM customers
-- expect:
CREATE MACRO worth(c) AS 1;
SELECT g.id, g.v + 1 AS a, s.v + 1 AS b FROM given g JOIN scored s USING (id)
-- spark:
CREATE OR REPLACE TEMPORARY FUNCTION worth(c DOUBLE, n INT DEFAULT 3) RETURNS DOUBLE RETURN predict('value', charges := c, visits := n) + 1;
SELECT id, worth(charges) AS a, worth(charges, n => visits) AS b FROM customers

-- name: a macro of two arities
CREATE MACRO worth(c) AS predict('value', c, 0), (c, n) AS predict('value', c, n);
SELECT id, worth(charges) AS a, worth(charges, visits) AS b FROM customers
-- rows:
SELECT id, charges, 0 AS visits FROM customers
-- expect:
CREATE MACRO worth(c) AS 1;
SELECT g.id, g.v AS a, s.v AS b FROM given g JOIN scored s USING (id)
-- spark gap: Spark has no two functions of one name

-- name: a table macro
CREATE MACRO risky(least) AS TABLE SELECT id, predict('churn', *) AS p FROM customers WHERE predict_proba('churn', *, class := 'yes') > least;
SELECT id, p FROM risky(0.6)
-- expect:
CREATE MACRO risky(least) AS TABLE SELECT 1;
SELECT id, p FROM scored WHERE q > 0.6
-- spark:
CREATE OR REPLACE TEMPORARY FUNCTION risky(least DOUBLE) RETURNS TABLE (id INT, p STRING) RETURN SELECT id, predict('churn', *) AS p FROM customers WHERE predict_proba('churn', *, class := 'yes') > least;
SELECT id, p FROM risky(0.6)

-- name: a table macro whose argument is a feature
CREATE MACRO wish(w) AS TABLE SELECT id, predict('churn', *, plan := w) AS p FROM customers;
SELECT id, a.p AS a, b.p AS b FROM wish('max') a JOIN wish('basic') b USING (id)
-- rows:
SELECT c.* REPLACE (w AS plan) FROM customers c, unnest(['basic', 'max']) u(w)
-- expect:
CREATE MACRO wish(w) AS TABLE SELECT 1;
SELECT id, a.p AS a, b.p AS b FROM given a JOIN given b USING (id) WHERE a.plan = 'max' AND b.plan = 'basic'
-- spark:
CREATE OR REPLACE TEMPORARY FUNCTION wish(w STRING) RETURNS TABLE (id INT, p STRING) RETURN SELECT id, predict('churn', *, plan := w) AS p FROM customers;
SELECT id, a.p AS a, b.p AS b FROM wish('max') a JOIN wish('basic') b USING (id)

-- name: a macro inside of a macro's argument
CREATE MACRO likely(c, n) AS predict('loyal', tenure := c, visits := n);
CREATE MACRO both_ways(c, n) AS likely(c, n) AND NOT likely(n, c);
SELECT id, both_ways(tenure, visits) AS b FROM customers
-- rows:
SELECT id, visits AS tenure, tenure AS visits FROM customers
-- expect:
CREATE MACRO likely(c) AS 1; CREATE MACRO both_ways(c) AS 1;
SELECT id, s.l AND NOT g.l AS b FROM given g JOIN scored s USING (id)
-- spark:
CREATE OR REPLACE TEMPORARY FUNCTION likely(c DOUBLE, n DOUBLE) RETURNS BOOLEAN RETURN predict('loyal', tenure := c, visits := n);
CREATE OR REPLACE TEMPORARY FUNCTION both_ways(c DOUBLE, n DOUBLE) RETURNS BOOLEAN RETURN likely(c, n) AND NOT likely(n, c);
SELECT id, both_ways(tenure, visits) AS b FROM customers

-- name: a user's macro inside of a call
SELECT id, predict('value', charges := more(charges), visits := visits) AS v FROM customers
-- setup:
CREATE MACRO more(x) AS x * 1.25 + 1
-- rows:
SELECT id, charges * 1.25 + 1 AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given
-- spark setup:
CREATE OR REPLACE TEMPORARY FUNCTION more(x DOUBLE) RETURNS DOUBLE RETURN x * 1.25 + 1

-- name: a table macro as the source of a call
SELECT id, predict('churn', *) AS p FROM of_plan('pro')
-- setup:
CREATE MACRO of_plan(w) AS TABLE FROM customers WHERE plan = w
-- expect:
SELECT id, p FROM scored WHERE plan = 'pro'
-- spark setup:
CREATE OR REPLACE TEMPORARY FUNCTION of_plan(w STRING) RETURNS TABLE RETURN SELECT * FROM customers WHERE plan = w

-- name: a macro around a call
SELECT id, percent(predict_proba('churn', *, class := 'yes')) AS x FROM customers
-- setup:
CREATE MACRO percent(x) AS 100 * x
-- expect:
SELECT id, 100 * q AS x FROM scored
-- spark setup:
CREATE OR REPLACE TEMPORARY FUNCTION percent(x DOUBLE) RETURNS DOUBLE RETURN 100 * x

-- name: a macro with a subquery of calls
CREATE MACRO how_many(w) AS (SELECT count(*) FROM customers WHERE plan = w AND predict('churn', *) = 'yes');
SELECT how_many('max') AS a, how_many('pro') AS b
-- expect:
CREATE MACRO how_many(w) AS 1;
SELECT count(*) FILTER (plan = 'max') AS a, count(*) FILTER (plan = 'pro') AS b FROM scored WHERE p = 'yes'
-- spark:
CREATE OR REPLACE TEMPORARY FUNCTION how_many(w STRING) RETURNS BIGINT RETURN (SELECT count(*) FROM customers WHERE plan = w AND predict('churn', *) = 'yes');
SELECT how_many('max') AS a, how_many('pro') AS b

-- name: query_table as the source
SELECT id, predict('loyal', *) AS l FROM query_table('customers')
-- expect:
SELECT id, l FROM scored
-- spark:
SELECT id, predict('loyal', *) AS l FROM IDENTIFIER('customers')

-- name: query as the source
SELECT id, predict('loyal', *) AS l FROM query('SELECT id, tenure, visits FROM customers WHERE id < 12')
-- expect:
SELECT id, l FROM scored WHERE id < 12
-- spark gap: Spark has no table function that runs a text
