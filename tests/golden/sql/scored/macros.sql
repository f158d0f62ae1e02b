-- name: a macro that calls a model
CREATE MACRO worth(c, n) AS predict('value', charges := c, visits := n);
SELECT id, worth(charges, visits) AS v FROM customers
-- expect:
CREATE MACRO worth(c, n) AS 1;
SELECT id, v FROM scored

-- name: a macro with strings as features
CREATE TEMP MACRO leaves(t, c, w, r) AS predict('churn', t, c, w, r);
SELECT id, leaves(tenure, charges, plan, region) AS p FROM customers
-- expect:
CREATE TEMP MACRO leaves(t) AS 1;
SELECT id, p FROM scored

-- name: a macro with a default
CREATE OR REPLACE FUNCTION worth(c, n := 3) AS predict('value', charges := c, visits := n) + 1;
SELECT id, worth(charges) AS a, worth(charges, n := visits) AS b FROM customers
-- rows:
SELECT id, charges, 3 AS visits FROM customers
-- expect:
CREATE MACRO worth(c) AS 1;
SELECT g.id, g.v + 1 AS a, s.v + 1 AS b FROM given g JOIN scored s USING (id)

-- name: a macro of two arities
CREATE MACRO worth(c) AS predict('value', c, 0), (c, n) AS predict('value', c, n);
SELECT id, worth(charges) AS a, worth(charges, visits) AS b FROM customers
-- rows:
SELECT id, charges, 0 AS visits FROM customers
-- expect:
CREATE MACRO worth(c) AS 1;
SELECT g.id, g.v AS a, s.v AS b FROM given g JOIN scored s USING (id)

-- name: a table macro
CREATE MACRO risky(least) AS TABLE SELECT id, predict('churn', *) AS p FROM customers WHERE predict_proba('churn', *, class := 'yes') > least;
SELECT id, p FROM risky(0.6)
-- expect:
CREATE MACRO risky(least) AS TABLE SELECT 1;
SELECT id, p FROM scored WHERE q > 0.6

-- name: a table macro whose argument is a feature
CREATE MACRO wish(w) AS TABLE SELECT id, predict('churn', *, plan := w) AS p FROM customers;
SELECT id, a.p AS a, b.p AS b FROM wish('max') a JOIN wish('basic') b USING (id)
-- rows:
SELECT c.* REPLACE (w AS plan) FROM customers c, unnest(['basic', 'max']) u(w)
-- expect:
CREATE MACRO wish(w) AS TABLE SELECT 1;
SELECT id, a.p AS a, b.p AS b FROM given a JOIN given b USING (id) WHERE a.plan = 'max' AND b.plan = 'basic'

-- name: a macro inside of a macro's argument
CREATE MACRO likely(c, n) AS predict('loyal', tenure := c, visits := n);
CREATE MACRO both_ways(c, n) AS likely(c, n) AND NOT likely(n, c);
SELECT id, both_ways(tenure, visits) AS b FROM customers
-- rows:
SELECT id, visits AS tenure, tenure AS visits FROM customers
-- expect:
CREATE MACRO likely(c) AS 1; CREATE MACRO both_ways(c) AS 1;
SELECT id, s.l AND NOT g.l AS b FROM given g JOIN scored s USING (id)

-- name: a user's macro inside of a call
SELECT id, predict('value', charges := more(charges), visits := visits) AS v FROM customers
-- setup:
CREATE MACRO more(x) AS x * 1.25 + 1
-- rows:
SELECT id, charges * 1.25 + 1 AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given

-- name: a table macro as the source of a call
SELECT id, predict('churn', *) AS p FROM of_plan('pro')
-- setup:
CREATE MACRO of_plan(w) AS TABLE FROM customers WHERE plan = w
-- expect:
SELECT id, p FROM scored WHERE plan = 'pro'

-- name: a macro around a call
SELECT id, percent(predict_proba('churn', *, class := 'yes')) AS x FROM customers
-- setup:
CREATE MACRO percent(x) AS 100 * x
-- expect:
SELECT id, 100 * q AS x FROM scored

-- name: a macro with a subquery of calls
CREATE MACRO how_many(w) AS (SELECT count(*) FROM customers WHERE plan = w AND predict('churn', *) = 'yes');
SELECT how_many('max') AS a, how_many('pro') AS b
-- expect:
CREATE MACRO how_many(w) AS 1;
SELECT count(*) FILTER (plan = 'max') AS a, count(*) FILTER (plan = 'pro') AS b FROM scored WHERE p = 'yes'

-- name: query_table as the source
SELECT id, predict('loyal', *) AS l FROM query_table('customers')
-- expect:
SELECT id, l FROM scored

-- name: query as the source
SELECT id, predict('loyal', *) AS l FROM query('SELECT id, tenure, visits FROM customers WHERE id < 12')
-- expect:
SELECT id, l FROM scored WHERE id < 12
