-- name: from before select
FROM customers SELECT id, predict('churn', *) AS p
-- expect:
SELECT id, p FROM scored

-- name: from, select and where
FROM customers SELECT id WHERE predict_proba('churn', *, class := 'yes') > 0.5
-- expect:
SELECT id FROM scored WHERE q > 0.5

-- name: from without select
FROM customers WHERE predict('loyal', *) ORDER BY predict('value', *) DESC, id LIMIT 3
-- expect:
SELECT id, name, tenure, charges, plan, region, visits, joined FROM scored WHERE l ORDER BY v DESC, id LIMIT 3
-- spark:
FROM customers |> WHERE predict('loyal', *) |> ORDER BY predict('value', *) DESC, id |> LIMIT 3

-- name: from, group and having
FROM customers SELECT plan, max(predict('value', *)) AS m GROUP BY plan HAVING m > 0 ORDER BY plan
-- expect:
SELECT plan, max(v) AS m FROM scored GROUP BY plan HAVING max(v) > 0 ORDER BY plan

-- name: from first in a subquery
SELECT avg(q) AS a FROM (FROM customers c SELECT predict_proba('churn', c.*, class := 'yes') AS q WHERE c.visits > 4)
-- expect:
SELECT avg(q) AS a FROM scored WHERE visits > 4

-- name: from first in a definition
WITH s AS (FROM customers SELECT id, predict('risk', *) AS r) FROM s WHERE r = 1
-- expect:
SELECT id, r FROM scored WHERE r = 1
-- spark:
WITH s AS (FROM customers SELECT id, predict('risk', *) AS r) FROM s SELECT * WHERE r = 1

-- name: from a join first
FROM customers c JOIN logins l ON c.id = l.customer_id SELECT l.seen, predict('value', c.*) AS v ORDER BY seen
-- expect:
SELECT l.seen, v FROM scored c JOIN logins l ON c.id = l.customer_id ORDER BY seen

-- name: from first with distinct
FROM customers SELECT DISTINCT predict('churn', *) AS p ORDER BY p
-- expect:
SELECT DISTINCT p FROM scored ORDER BY p

-- name: an alias before its table
FROM c: customers SELECT id, predict('churn', c.*) AS p
-- expect:
SELECT id, p FROM scored
-- spark gap: Spark writes an alias only behind its table

-- name: from values
FROM (VALUES (40.0, 1), (80.0, 20)) t(charges, visits) SELECT predict('value', *) AS v, charges::DOUBLE AS charges
-- rows:
FROM (VALUES (40.0, 1), (80.0, 20)) t(charges, visits)
-- expect:
SELECT v, charges FROM given

-- name: from a range
FROM range(0, 60, 10) r(charges) SELECT charges, predict('value', *, visits := 3) AS v
-- rows:
FROM range(0, 60, 10) r(charges) SELECT charges, 3 AS visits
-- expect:
SELECT charges, v FROM given

-- name: from generate_series as numbers
SELECT n, predict('loyal', tenure := n, visits := n % 7) AS l FROM generate_series(0, 70, 7) AS g(n)
-- rows:
SELECT n, n AS tenure, n % 7 AS visits FROM generate_series(0, 70, 7) AS g(n)
-- expect:
SELECT n, l FROM given
-- spark:
SELECT n, predict('loyal', tenure := n, visits := n % 7) AS l FROM explode(sequence(0, 70, 7)) AS g(n)

-- name: a call on a generated grid
SELECT t, c::DOUBLE AS c, predict('risk', tenure := t, charges := c, visits := 4) AS r
FROM generate_series(0, 60, 20) a(t), (VALUES (20.0), (60.0), (90.0)) b(c)
-- rows:
SELECT t, c, t AS tenure, c AS charges, 4 AS visits
FROM generate_series(0, 60, 20) a(t), (VALUES (20.0), (60.0), (90.0)) b(c)
-- expect:
SELECT t, c, r FROM given
-- spark:
SELECT t, c::DOUBLE AS c, predict('risk', tenure := t, charges := c, visits := 4) AS r
FROM explode(sequence(0, 60, 20)) a(t), (VALUES (20.0), (60.0), (90.0)) b(c)

-- name: values with calls in them
VALUES (0, predict('value', charges := 10, visits := 2)), (1, predict('value', 20, 3))
-- rows:
SELECT * FROM (VALUES (10.0, 2), (20.0, 3)) t(charges, visits)
-- expect:
SELECT row::INTEGER AS col0, v AS col1 FROM given
-- spark:
SELECT * FROM stack(2, 0, predict('value', charges := 10, visits := 2), 1, predict('value', 20, 3)) t(col0, col1)
