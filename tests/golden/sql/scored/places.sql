-- name: values as a lateral table of calls
SELECT c.id, t.x FROM customers c, LATERAL (VALUES (predict('churn', c.*)), (c.plan)) t(x)
-- expect:
SELECT id, unnest([p, plan]) AS x FROM scored
-- spark:
SELECT c.id, t.x FROM customers c, LATERAL stack(2, predict('churn', c.*), c.plan) t(x)

-- name: unnest of a list of calls in from
SELECT c.id, u.x FROM customers c, unnest([predict('value', c.*), c.charges]) u(x)
-- expect:
SELECT id, unnest([v, charges]) AS x FROM scored
-- spark:
SELECT c.id, u.x FROM customers c, LATERAL explode(array(predict('value', c.*), c.charges)) u(x)

-- name: a lateral range as long as a label says
SELECT c.id, g.n FROM customers c, range(predict('risk', c.*)) g(n)
-- expect:
SELECT s.id, g.n FROM scored s, range(s.r) g(n)
-- spark:
SELECT c.id, g.n FROM customers c, LATERAL (SELECT * FROM range(9) r WHERE r.id < predict('risk', c.*)) g(n)

-- name: a scalar subquery of values
SELECT (VALUES (predict('value', 10, 3))) AS v
-- rows:
SELECT 10 AS charges, 3 AS visits
-- expect:
SELECT v FROM given
-- spark:
SELECT (SELECT * FROM stack(1, predict('value', 10, 3))) AS v

-- name: the word table
SELECT id FROM (TABLE customers) t WHERE predict('churn', t.*) = 'yes'
-- expect:
SELECT id FROM scored WHERE p = 'yes'

-- name: a base table with other names for its columns
SELECT c.k, predict('churn', c.*) AS p FROM customers c(k, n, TENURE, CHARGES, PLAN, REGION)
-- expect:
SELECT id AS k, p FROM scored
-- spark:
SELECT c.k, predict('churn', c.*) AS p FROM customers c(k, n, TENURE, CHARGES, PLAN, REGION, v, j)

-- name: the order of a union by a call
SELECT id, charges, visits FROM customers WHERE id < 5 UNION ALL SELECT id, charges + 50, visits FROM customers WHERE id < 5 ORDER BY predict('value', *) DESC
-- since: 2.0
-- rows:
SELECT id, charges, visits FROM customers WHERE id < 5 UNION ALL SELECT id, charges + 50, visits FROM customers WHERE id < 5
-- expect:
SELECT id, charges, visits FROM given ORDER BY v DESC

-- name: a correlated count of equal labels
SELECT c.id, (SELECT count(*) FROM customers i WHERE predict('churn', i.*) = predict('churn', c.*) AND i.id < c.id) AS n FROM customers c
-- expect:
SELECT c.id, (SELECT count(*) FROM scored i WHERE i.p = c.p AND i.id < c.id) AS n FROM scored c

-- name: exists from-first
SELECT id FROM customers c WHERE EXISTS (FROM logins l WHERE l.customer_id = c.id AND l.pages > predict('risk', c.*) + 5)
-- expect:
SELECT id FROM scored c WHERE EXISTS (FROM logins l WHERE l.customer_id = c.id AND l.pages > c.r + 5)
-- spark:
SELECT id FROM customers c WHERE EXISTS (FROM logins l SELECT * WHERE l.customer_id = c.id AND l.pages > predict('risk', c.*) + 5)

-- name: a join condition with a bare star of both sides
SELECT c.id, l.pages FROM customers c JOIN logins l ON c.id = l.customer_id AND predict('loyal', *)
-- expect:
SELECT c.id, l.pages FROM scored c JOIN logins l ON c.id = l.customer_id AND c.l

-- name: a join condition of the second join
SELECT a.id, x.k FROM customers a JOIN boxes b ON b.id = a.id JOIN (VALUES ('yes', 1), ('no', 0)) x(w, k) ON x.w = predict('churn', b.c)
-- expect:
SELECT id, (p = 'yes')::INTEGER AS k FROM scored WHERE id < 40

-- name: a filter over a left join in its on clause
SELECT c.id, l.pages FROM customers c LEFT JOIN logins l ON l.customer_id = c.id AND predict('churn', c.*) = 'no'
-- expect:
SELECT c.id, l.pages FROM scored c LEFT JOIN logins l ON l.customer_id = c.id AND c.p = 'no'

-- name: union arms of different models
SELECT 'churn' AS m, predict('churn', *) AS x FROM customers WHERE id < 9 UNION ALL SELECT 'risk', predict('risk', *)::VARCHAR FROM customers WHERE id < 9
-- expect:
SELECT 'churn' AS m, p AS x FROM scored WHERE id < 9 UNION ALL SELECT 'risk', r::VARCHAR FROM scored WHERE id < 9
-- spark:
SELECT 'churn' AS m, predict('churn', *) AS x FROM customers WHERE id < 9 UNION ALL SELECT 'risk', predict('risk', *)::STRING FROM customers WHERE id < 9

-- name: a subquery in from with limit, scored outside
SELECT id, predict('churn', *) AS p FROM (SELECT * FROM customers ORDER BY charges DESC, id LIMIT 12 OFFSET 3) ORDER BY id
-- expect:
SELECT id, p FROM (SELECT * FROM scored ORDER BY charges DESC, id LIMIT 12 OFFSET 3) ORDER BY id

-- name: a call in a filter of a subquery that is joined twice
WITH y AS (SELECT id, plan FROM customers WHERE predict('churn', *) = 'yes') SELECT a.id, count(b.id) AS n FROM y a LEFT JOIN y b ON a.plan = b.plan AND a.id < b.id GROUP BY a.id
-- expect:
WITH y AS (SELECT id, plan FROM scored WHERE p = 'yes') SELECT a.id, count(b.id) AS n FROM y a LEFT JOIN y b ON a.plan = b.plan AND a.id < b.id GROUP BY a.id

-- name: a scored row number as a join key
SELECT a.id, b.id AS other FROM (SELECT id, row_number() OVER (ORDER BY predict('value', *), id) AS k FROM customers) a JOIN (SELECT id, row_number() OVER (ORDER BY predict_score('churn', *), id) AS k FROM customers) b USING (k)
-- expect:
SELECT a.id, b.id AS other FROM (SELECT id, row_number() OVER (ORDER BY v, id) AS k FROM scored) a JOIN (SELECT id, row_number() OVER (ORDER BY m, id) AS k FROM scored) b USING (k)

-- name: the same alias in an inner and an outer block
SELECT c.id, (SELECT predict('value', c.charges, c.visits) FROM customers c WHERE c.id = 5) AS five, predict('value', c.*) AS v FROM customers c
-- expect:
SELECT id, (SELECT v FROM scored WHERE id = 5) AS five, v FROM scored

-- name: an alias of the select list that hides no column of the table
SELECT id, 0.5 AS charges, predict('value', charges, visits) AS v FROM customers
-- expect:
SELECT id, 0.5 AS charges, v FROM scored

-- name: an alias of an earlier item as a feature
SELECT id, charges * 2 AS twice, predict('value', charges := twice, visits := visits) AS v FROM customers
-- rows:
SELECT id, charges * 2 AS charges, visits FROM customers
-- expect:
SELECT id, charges AS twice, v FROM given

-- name: an alias of an earlier call as a feature
SELECT id, predict('value', *) AS worth, predict('risk', tenure, worth, visits) AS r FROM customers
-- rows:
SELECT id, tenure, v AS charges, visits FROM scored
-- expect:
SELECT id, charges AS worth, r FROM given

-- name: a call below a window below a call
SELECT id, predict('value', charges := max(predict('value', *)) OVER (PARTITION BY plan), visits := visits) AS v FROM customers
-- rows:
SELECT id, max(v) OVER (PARTITION BY plan) AS charges, visits FROM scored
-- expect:
SELECT id, v FROM given

-- name: an aggregate of a call as a feature of a call
SELECT plan, predict('value', charges := avg(predict('value', *)), visits := count(*)) AS v FROM customers GROUP BY plan
-- rows:
SELECT plan, avg(v) AS charges, count(*) AS visits FROM scored GROUP BY plan
-- expect:
SELECT plan, v FROM given

-- name: calls in three levels of each other
SELECT id, predict('value', charges := predict('value', charges := predict('value', *), visits := visits), visits := visits) AS v FROM customers
-- rows:
SELECT * FROM (VALUES (0.0, 0), (1.0, 0), (0.0, 1)) t(charges, visits)
-- expect:
WITH k AS (SELECT max(v) FILTER (row = 0) AS c, max(v) FILTER (row = 1) - c AS a, max(v) FILTER (row = 2) - c AS b FROM given)
SELECT id, a * (a * v + b * visits + c) + b * visits + c AS v FROM scored, k
