-- name: a lambda over a list of wishes
SELECT list_transform([10, 50, 90], lambda x: predict('value', charges := x, visits := 3)) AS vs
-- rows:
SELECT unnest([10, 50, 90]) AS charges, 3 AS visits
-- expect:
SELECT list(v ORDER BY row) AS vs FROM given
-- spark:
SELECT transform(array(10, 50, 90), x -> predict('value', charges := x, visits := 3)) AS vs

-- name: a lambda that also sees the row
SELECT id, list_transform([0, 10], lambda x: predict('value', charges := c.charges + x, visits := c.visits)) AS vs FROM customers c
-- rows:
SELECT id, x, charges + x AS charges, visits FROM customers, unnest([0, 10]) u(x)
-- expect:
SELECT id, list(v ORDER BY x) AS vs FROM given GROUP BY id
-- spark:
SELECT id, transform(array(0, 10), x -> predict('value', charges := c.charges + x, visits := c.visits)) AS vs FROM customers c

-- name: a lambda of two parameters, value and index
SELECT list_transform([20.5, 80.5], lambda x, i: predict('value', charges := x, visits := i)) AS vs
-- rows:
SELECT * FROM (VALUES (20.5, 1), (80.5, 2)) t(charges, visits)
-- expect:
SELECT list(v ORDER BY row) AS vs FROM given
-- spark:
SELECT transform(array(20.5, 80.5), (x, i) -> predict('value', charges := x, visits := i + 1)) AS vs

-- name: a filter of a list by a label
SELECT list_filter(range(0, 60, 5), lambda n: predict('loyal', tenure := n, visits := 12)) AS ns
-- rows:
SELECT n, n AS tenure, 12 AS visits FROM range(0, 60, 5) t(n)
-- expect:
SELECT list(n ORDER BY n) FILTER (l) AS ns FROM given
-- spark:
SELECT filter(sequence(0, 55, 5), n -> predict('loyal', tenure := n, visits := 12)) AS ns

-- name: a comprehension
SELECT [predict('value', charges := x, visits := 1) FOR x IN [5, 15, 25] IF x > 5] AS vs
-- rows:
SELECT unnest([15, 25]) AS charges, 1 AS visits
-- expect:
SELECT list(v ORDER BY row) AS vs FROM given
-- spark:
SELECT transform(filter(array(5, 15, 25), x -> x > 5), x -> predict('value', charges := x, visits := 1)) AS vs

-- name: a comprehension over structs
SELECT id, [predict('value', charges := b.charges, visits := b.visits) FOR b IN cs] AS vs FROM boxes
-- rows:
SELECT id, u.charges, u.visits, i FROM (SELECT id, unnest(cs) AS u, generate_subscripts(cs, 1) AS i FROM boxes)
-- expect:
SELECT id, list(v ORDER BY i) AS vs FROM given GROUP BY id
-- spark:
SELECT id, transform(cs, b -> predict('value', charges := b.charges, visits := b.visits)) AS vs FROM boxes

-- name: a lambda over structs
SELECT id, list_transform(cs, lambda b: predict('value', charges := b.charges, visits := b.visits)) AS vs FROM boxes
-- rows:
SELECT id, u.charges, u.visits, i FROM (SELECT id, unnest(cs) AS u, generate_subscripts(cs, 1) AS i FROM boxes)
-- expect:
SELECT id, list(v ORDER BY i) AS vs FROM given GROUP BY id
-- spark:
SELECT id, transform(cs, b -> predict('value', charges := b.charges, visits := b.visits)) AS vs FROM boxes

-- name: strings in a lambda
SELECT id, list_transform(['basic', 'max'], lambda w: predict('churn', *, plan := w)) AS ps FROM customers
-- rows:
SELECT c.* REPLACE (w AS plan), w FROM customers c, unnest(['basic', 'max']) u(w)
-- expect:
SELECT id, list(p ORDER BY plan) AS ps FROM given GROUP BY id
-- spark:
SELECT id, transform(array('basic', 'max'), w -> predict('churn', *, plan := w)) AS ps FROM customers

-- name: a lambda that sees the row and gives all probabilities
SELECT id, list_transform([0, 40], lambda t: predict_proba('risk', tenure := t, charges := c.charges, visits := c.visits)[2::BIGINT]) AS r2 FROM customers c
-- rows:
SELECT id, t AS tenure, charges, visits FROM customers, unnest([0, 40]) u(t)
-- expect:
SELECT id, list(r2 ORDER BY tenure) AS r2 FROM given GROUP BY id
-- spark:
SET sqlml_backend = 'sql';
CREATE OR REPLACE TEMPORARY VIEW wished AS SELECT id, transform(array(0, 40), t -> predict_proba('risk', tenure := t, charges := c.charges, visits := c.visits)[2::BIGINT]) AS r2 FROM customers c;
RESET sqlml_backend;
SELECT * FROM wished

-- name: nested lambdas
SELECT list_transform([10, 60], lambda x: list_transform([1, 20], lambda y: predict('value', charges := x, visits := y))) AS vs
-- rows:
SELECT x AS charges, y AS visits FROM unnest([10, 60]) a(x), unnest([1, 20]) b(y) ORDER BY x, y
-- expect:
SELECT [list(v ORDER BY row) FILTER (charges = 10), list(v ORDER BY row) FILTER (charges = 60)] AS vs FROM given
-- spark:
SELECT transform(array(10, 60), x -> transform(array(1, 20), y -> predict('value', charges := x, visits := y))) AS vs

-- name: the call is outside of the lambda
SELECT id, predict('value', charges := list_sum(list_transform([1, 2], lambda x: x * charges)), visits := visits) AS v FROM customers
-- rows:
SELECT id, 3 * charges AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given
-- spark:
SELECT id, predict('value', charges := aggregate(transform(array(1, 2), x -> x * charges), 0D, (a, x) -> a + x), visits := visits) AS v FROM customers

-- name: a reduce that scores on its way
SELECT list_reduce([30.0, 1.0, 2.0]::DOUBLE[], lambda acc, x: acc + predict('value', charges := x, visits := 2)) AS s
-- rows:
SELECT unnest([1.0, 2.0]) AS charges, 2 AS visits
-- expect:
SELECT 30.0 + sum(v) AS s FROM given
-- spark:
SELECT reduce(array(1.0D, 2.0D), 30.0D, (acc, x) -> acc + predict('value', charges := x, visits := 2)) AS s

-- name: a lambda's parameter has the name of a column
SELECT id, list_transform([1, 2], lambda charges: predict('value', charges := charges, visits := visits)) AS vs FROM customers
-- rows:
SELECT id, x AS charges, visits FROM customers, unnest([1, 2]) u(x)
-- expect:
SELECT id, list(v ORDER BY charges) AS vs FROM given GROUP BY id
-- spark:
SELECT id, transform(array(1, 2), charges -> predict('value', charges := charges, visits := visits)) AS vs FROM customers

-- name: the best of several wishes
SELECT id, list_max(list_transform([0, 10, 25], lambda n: predict('value', charges := charges, visits := n))) AS best FROM customers
-- rows:
SELECT id, charges, n AS visits FROM customers, unnest([0, 10, 25]) u(n)
-- expect:
SELECT id, max(v) AS best FROM given GROUP BY id
-- spark:
SELECT id, array_max(transform(array(0, 10, 25), n -> predict('value', charges := charges, visits := n))) AS best FROM customers

-- name: a call in the list that a lambda reads
SELECT id, list_transform([predict('value', *), charges], lambda x: x * 2) AS xs FROM customers
-- expect:
SELECT id, [v * 2, charges * 2] AS xs FROM scored
-- spark:
SELECT id, transform(array(predict('value', *), charges), x -> x * 2) AS xs FROM customers

-- name: a field of a lambda's struct by its key
-- since: 2.0
SELECT id, list_transform(cs, lambda b: predict('value', charges := b['charges'], visits := b.visits)) AS vs FROM boxes
-- rows:
SELECT id, u.charges, u.visits, i FROM (SELECT id, unnest(cs) AS u, generate_subscripts(cs, 1) AS i FROM boxes)
-- expect:
SELECT id, list(v ORDER BY i) AS vs FROM given GROUP BY id
-- spark:
SELECT id, transform(cs, b -> predict('value', charges := b['charges'], visits := b.visits)) AS vs FROM boxes
