-- name: a definition that scores
WITH s AS (SELECT *, predict_proba('churn', *, class := 'yes') AS chance FROM customers) SELECT id, chance FROM s WHERE chance > 0.3
-- expect:
SELECT id, q AS chance FROM scored WHERE q > 0.3

-- name: scoring the rows of a definition
WITH a AS (SELECT * FROM customers WHERE id < 50), b AS (SELECT * FROM a WHERE id > 10) SELECT id, predict('churn', *) AS p FROM b
-- expect:
SELECT id, p FROM scored WHERE id < 50 AND id > 10

-- name: a definition with names for its columns
WITH a(k, charges, visits) AS (SELECT id, charges, visits FROM customers) SELECT k, predict('value', *) AS v FROM a
-- expect:
SELECT id AS k, v FROM scored

-- name: a materialized definition used twice
WITH s AS MATERIALIZED (SELECT id, predict('risk', *) AS r FROM customers)
SELECT a.id, b.r FROM s a JOIN s b ON a.id = b.id + 1
-- expect:
SELECT a.id, b.r FROM scored a JOIN scored b ON a.id = b.id + 1
-- spark:
WITH s AS (SELECT id, predict('risk', *) AS r FROM customers)
SELECT a.id, b.r FROM s a JOIN s b ON a.id = b.id + 1

-- name: a definition that is not materialized
WITH s AS NOT MATERIALIZED (SELECT *, predict('risk', *) AS k FROM customers) SELECT k, count(*) AS n FROM s GROUP BY k
-- expect:
SELECT r AS k, count(*) AS n FROM scored GROUP BY r
-- spark:
WITH s AS (SELECT *, predict('risk', *) AS k FROM customers) SELECT k, count(*) AS n FROM s GROUP BY k

-- name: a definition that hides a table
WITH customers AS (SELECT * REPLACE ('pro' AS plan) FROM customers) SELECT id, predict('churn', *) AS p FROM customers
-- rows:
SELECT * REPLACE ('pro' AS plan) FROM customers
-- expect:
SELECT id, p FROM given
-- spark:
WITH customers AS (SELECT * EXCEPT (plan), 'pro' AS plan FROM customers) SELECT id, predict('churn', *) AS p FROM customers

-- name: definitions inside a subquery
SELECT x.id, x.v FROM (WITH a AS (SELECT * FROM customers WHERE plan = 'max') SELECT id, predict('value', *) AS v FROM a) x
-- expect:
SELECT id, v FROM scored WHERE plan = 'max'

-- name: a definition within a definition
WITH a AS (WITH b AS (SELECT * FROM customers WHERE id > 100) SELECT *, predict('loyal', *) AS yes FROM b) SELECT id FROM a WHERE yes
-- expect:
SELECT id FROM scored WHERE id > 100 AND l

-- name: an inner definition hides an outer one
WITH t AS (SELECT 1 AS charges, 1 AS visits) SELECT (WITH t AS (SELECT 90 AS charges, 2 AS visits) SELECT predict('value', *) FROM t) AS inner_one, predict('value', *) AS outer_one FROM t
-- rows:
SELECT * FROM (VALUES (90, 2), (1, 1)) t(charges, visits)
-- expect:
SELECT (SELECT v FROM given WHERE row = 0) AS inner_one, (SELECT v FROM given WHERE row = 1) AS outer_one

-- name: recursion makes the rows
WITH RECURSIVE r(charges, visits) AS (SELECT 10.0::DOUBLE, 1 UNION ALL SELECT charges + 15, visits * 2 FROM r WHERE visits < 30)
SELECT visits, predict('value', *) AS v FROM r
-- rows:
WITH RECURSIVE r(charges, visits) AS (SELECT 10.0::DOUBLE, 1 UNION ALL SELECT charges + 15, visits * 2 FROM r WHERE visits < 30) FROM r
-- expect:
SELECT visits, v FROM given

-- name: a call in the condition of a recursion
WITH RECURSIVE r(charges, n) AS (SELECT 0.0::DOUBLE, 0 UNION ALL SELECT charges + 25, n + 1 FROM r WHERE predict('risk', tenure := 40, charges := charges, visits := 3) < 2 AND n < 20)
SELECT max(n) AS n FROM r
-- rows:
SELECT 40.0 AS tenure, n * 25.0 AS charges, 3 AS visits, n FROM range(21) t(n)
-- expect:
SELECT coalesce(min(n) FILTER (r >= 2), 20)::INTEGER AS n FROM given

-- name: recursion over the rows of a table, the label carried along
WITH RECURSIVE chain(id, p) AS (SELECT id, predict('churn', *) FROM customers WHERE id = 0
    UNION ALL SELECT c.id, predict('churn', c.*) FROM customers c JOIN chain ON c.id = chain.id + 7)
SELECT id, p FROM chain ORDER BY id
-- expect:
SELECT id, p FROM scored WHERE id % 7 = 0 ORDER BY id

-- name: recursion with a key
WITH RECURSIVE t(k, n) USING KEY (k) AS (SELECT 1, 0 UNION SELECT k, n + 1 FROM t WHERE n < 5)
SELECT k, n, predict('value', charges := n, visits := k) AS v FROM t
-- rows:
SELECT 1 AS k, 5 AS n, 5 AS charges, 1 AS visits
-- expect:
SELECT k, n, v FROM given
-- spark gap: Spark has no USING KEY in a recursion

-- name: union all of two scored sets
SELECT id, predict('churn', *) AS p FROM customers WHERE id < 9 UNION ALL SELECT id, predict('churn', *) FROM customers WHERE id > 110
-- expect:
SELECT id, p FROM scored WHERE id < 9 OR id > 110

-- name: union removes equal labels
SELECT predict('churn', *) AS x FROM customers UNION SELECT plan FROM customers
-- expect:
SELECT p AS x FROM scored UNION SELECT plan FROM customers

-- name: intersect and except
SELECT id FROM customers WHERE predict('churn', *) = 'yes' INTERSECT SELECT id FROM customers WHERE predict('loyal', *)
EXCEPT SELECT id FROM customers WHERE predict('risk', *) = 1
-- expect:
SELECT id FROM scored WHERE p = 'yes' AND l INTERSECT SELECT id FROM scored WHERE l EXCEPT SELECT id FROM scored WHERE r = 1

-- name: except all
SELECT predict('risk', *) AS r FROM customers EXCEPT ALL SELECT predict('risk', *) FROM customers WHERE id < 60
-- expect:
SELECT r FROM scored EXCEPT ALL SELECT r FROM scored WHERE id < 60

-- name: union by name
SELECT predict('value', *) AS v, id FROM customers WHERE id < 5 UNION ALL BY NAME SELECT id, plan FROM customers WHERE id < 3
-- expect:
SELECT v, id FROM scored WHERE id < 5 UNION ALL BY NAME SELECT id, plan FROM customers WHERE id < 3
-- spark gap: Spark has UNION BY NAME for data frames only, not in SQL

-- name: a union in brackets, ordered as a whole
(SELECT id, predict('value', *) AS v FROM customers WHERE id < 20) UNION ALL (SELECT -1, 0.0::DOUBLE) ORDER BY v, id
-- expect:
(SELECT id, v FROM scored WHERE id < 20) UNION ALL (SELECT -1, 0.0::DOUBLE) ORDER BY v, id

-- name: each arm of a union has its own order and limit
(FROM customers SELECT id ORDER BY predict('value', *), id LIMIT 2) UNION ALL (FROM customers SELECT id ORDER BY predict('value', *) DESC, id LIMIT 2)
-- expect:
(FROM scored SELECT id ORDER BY v, id LIMIT 2) UNION ALL (FROM scored SELECT id ORDER BY v DESC, id LIMIT 2)

-- name: scoring the rows of a union
SELECT k, predict('loyal', *) AS l FROM (SELECT 'a' AS k, tenure, visits FROM customers UNION ALL SELECT 'b', 70, 29 UNION ALL SELECT 'c', NULL, 0)
-- rows:
SELECT 'a' AS k, tenure, visits FROM customers UNION ALL SELECT 'b', 70, 29 UNION ALL SELECT 'c', NULL, 0
-- expect:
SELECT k, l FROM given

-- name: a definition used by two arms
WITH s AS (SELECT id, predict('value', *) AS v FROM customers) SELECT 'max' AS k, max(v) AS v FROM s UNION ALL SELECT 'min', min(v) FROM s
-- expect:
SELECT 'max' AS k, max(v) AS v FROM scored UNION ALL SELECT 'min', min(v) FROM scored

-- name: many definitions, each on the one before
WITH a AS (FROM customers WHERE id % 2 = 0), b AS (SELECT *, predict('churn', *) AS label FROM a), c AS (SELECT * EXCLUDE label FROM b WHERE label = 'yes'),
d AS (SELECT id, predict('risk', *) AS r FROM c) SELECT r, count(*) AS n FROM d GROUP BY r ORDER BY r
-- expect:
SELECT r, count(*) AS n FROM scored WHERE id % 2 = 0 AND p = 'yes' GROUP BY r ORDER BY r
-- spark:
WITH a AS (FROM customers |> WHERE id % 2 = 0), b AS (SELECT *, predict('churn', *) AS label FROM a), c AS (SELECT * EXCEPT (label) FROM b WHERE label = 'yes'),
d AS (SELECT id, predict('risk', *) AS r FROM c) SELECT r, count(*) AS n FROM d GROUP BY r ORDER BY r

-- name: values as a definition
WITH t(charges, visits) AS (VALUES (1.5, 2), (99.5, 0)) SELECT charges::DOUBLE AS c, predict('value', t.*) AS v FROM t
-- rows:
FROM (VALUES (1.5, 2), (99.5, 0)) t(charges, visits)
-- expect:
SELECT charges AS c, v FROM given
