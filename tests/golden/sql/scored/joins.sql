-- name: the star of one side of a join
SELECT l.seen, predict('churn', c.*) AS p FROM customers c JOIN logins l ON c.id = l.customer_id
-- expect:
SELECT l.seen, p FROM scored c JOIN logins l ON c.id = l.customer_id

-- name: a bare star over two tables of different columns
SELECT id, seen, predict('risk', *) AS r FROM customers JOIN logins ON id = customer_id
-- expect:
SELECT id, seen, r FROM scored JOIN logins ON id = customer_id

-- name: features from both sides of a join
SELECT c.id, l.seen, predict('value', charges := c.charges, visits := l.pages) AS v
FROM customers c JOIN logins l ON c.id = l.customer_id
-- rows:
SELECT c.id, l.seen, c.charges, l.pages AS visits FROM customers c JOIN logins l ON c.id = l.customer_id
-- expect:
SELECT id, seen, v FROM given

-- name: using
SELECT id, predict('churn', *) AS p FROM (SELECT id, tenure, plan FROM customers)
    JOIN (SELECT id, charges, region FROM customers) USING (id)
-- expect:
SELECT id, p FROM scored

-- name: using on a feature
SELECT predict('loyal', *) AS l, visits FROM (SELECT DISTINCT visits FROM customers) a
    JOIN (SELECT visits, tenure FROM customers) b USING (visits)
-- expect:
SELECT l, visits FROM scored

-- name: a self join scores both sides
SELECT a.id, b.id AS next, predict('churn', a.*) AS pa, predict('churn', b.*) AS pb
FROM customers a JOIN customers b ON a.id + 1 = b.id
-- expect:
SELECT a.id, b.id AS next, a.p AS pa, b.p AS pb FROM scored a JOIN scored b ON a.id + 1 = b.id

-- name: a join whose condition calls a model
SELECT a.id, w.n FROM customers a JOIN (VALUES ('yes', 1), ('no', 2)) w(label, n) ON predict('churn', a.*) = w.label
-- expect:
SELECT a.id, w.n FROM scored a JOIN (VALUES ('yes', 1), ('no', 2)) w(label, n) ON p = w.label

-- name: a join on two labels
SELECT count(*) AS n FROM customers a JOIN customers b
ON predict('risk', a.*) = predict('risk', b.*) AND a.plan <> b.plan AND a.id < b.id
-- expect:
SELECT count(*) AS n FROM scored a JOIN scored b ON a.r = b.r AND a.plan <> b.plan AND a.id < b.id

-- name: a left join leaves missing values
SELECT l.customer_id, l.seen, predict_proba('risk', c.*, class := 1) AS r1
FROM logins l LEFT JOIN (SELECT * FROM customers WHERE id % 2 = 0) c ON c.id = l.customer_id
-- rows:
SELECT l.customer_id, l.seen, c.tenure, c.charges, c.visits
FROM logins l LEFT JOIN (SELECT * FROM customers WHERE id % 2 = 0) c ON c.id = l.customer_id
-- expect:
SELECT customer_id, seen, r1 FROM given

-- name: a right join
SELECT c.id, predict('churn', c.*) AS p FROM logins l RIGHT JOIN customers c ON c.id = l.customer_id
-- expect:
SELECT c.id, p FROM logins l RIGHT JOIN scored c ON c.id = l.customer_id

-- name: a full join with a filter of a call
SELECT c.id, l.seen FROM customers c FULL JOIN logins l ON c.id = l.customer_id
WHERE c.id IS NOT NULL AND predict('loyal', c.*)
-- expect:
SELECT c.id, l.seen FROM scored c FULL JOIN logins l ON c.id = l.customer_id WHERE c.id IS NOT NULL AND l

-- name: a semi join
SELECT id, predict('churn', *) AS p FROM customers SEMI JOIN logins ON id = customer_id
-- expect:
SELECT id, p FROM scored SEMI JOIN logins ON id = customer_id

-- name: an anti join over scored rows
SELECT c.id, predict('value', c.*) AS v FROM customers c
ANTI JOIN (SELECT id FROM customers WHERE predict('churn', *) = 'yes') y ON y.id = c.id
-- expect:
SELECT id, v FROM scored WHERE p = 'no'

-- name: a cross join with a table of wishes
SELECT c.id, w.more, predict('value', charges := c.charges + w.more, visits := c.visits) AS v
FROM customers c CROSS JOIN (VALUES (0), (5), (50)) w(more)
-- rows:
SELECT c.id, w.more, c.charges + w.more AS charges, c.visits
FROM customers c CROSS JOIN (VALUES (0), (5), (50)) w(more)
-- expect:
SELECT id, more, v FROM given

-- name: a comma join
SELECT c.id, predict('loyal', c.*) AS l, x.k FROM customers c, (SELECT 7 AS k) x
-- expect:
SELECT id, l, 7 AS k FROM scored

-- name: a positional join
SELECT predict('value', *) AS v FROM (SELECT charges FROM customers ORDER BY id)
    POSITIONAL JOIN (SELECT visits FROM customers ORDER BY id)
-- expect:
SELECT v FROM scored
-- spark gap: Spark has no POSITIONAL JOIN

-- name: an as-of join
SELECT l.customer_id, l.seen, d.day, predict('value', charges := d.charges, visits := l.pages) AS v
FROM logins l ASOF JOIN (SELECT TIMESTAMP '2024-06-01' + to_days(id) AS day, charges FROM customers WHERE id % 5 = 0) d
    ON l.seen >= d.day
-- rows:
SELECT l.customer_id, l.seen, d.day, d.charges, l.pages AS visits
FROM logins l ASOF JOIN (SELECT TIMESTAMP '2024-06-01' + to_days(id) AS day, charges FROM customers WHERE id % 5 = 0) d
    ON l.seen >= d.day
-- expect:
SELECT customer_id, seen, day, v FROM given
-- spark gap: Spark has no ASOF JOIN

-- name: an as-of left join of scored rows
SELECT c.id, s.pages, predict('churn', c.*) AS p
FROM customers c ASOF LEFT JOIN logins s ON c.id = s.customer_id AND c.joined::TIMESTAMP + INTERVAL 100 DAY >= s.seen
-- expect:
SELECT c.id, s.pages, p
FROM scored c ASOF LEFT JOIN logins s ON c.id = s.customer_id AND c.joined::TIMESTAMP + INTERVAL 100 DAY >= s.seen
-- spark gap: Spark has no ASOF JOIN

-- name: an as-of join with using
SELECT count(*) AS n, sum(predict('value', charges := charges, visits := pages)) AS s
FROM (SELECT customer_id, seen, pages FROM logins) ASOF JOIN
    (SELECT id AS customer_id, joined::TIMESTAMP AS seen, charges FROM customers) USING (customer_id, seen)
-- rows:
SELECT charges, pages AS visits FROM (SELECT customer_id, seen, pages FROM logins) ASOF JOIN
    (SELECT id AS customer_id, joined::TIMESTAMP AS seen, charges FROM customers) USING (customer_id, seen)
-- expect:
SELECT count(*) AS n, sum(v) AS s FROM given
-- spark gap: Spark has no ASOF JOIN

-- name: a lateral subquery of a call
SELECT c.id, x.p FROM customers c, LATERAL (SELECT predict('churn', c.*) AS p) x
-- expect:
SELECT id, p FROM scored

-- name: a lateral subquery without the word
SELECT c.id, v2 FROM customers c, (SELECT predict('value', c.charges, c.visits) * 2 AS v2)
-- expect:
SELECT id, v * 2 AS v2 FROM scored
-- spark gap: Spark takes a correlated subquery in FROM only behind LATERAL

-- name: a lateral join with rows of its own
SELECT c.id, x.more, x.v FROM customers c
JOIN LATERAL (SELECT g AS more, predict('value', charges := c.charges, visits := c.visits + g) AS v FROM range(3) t(g)) x
    ON x.more <> 1
-- rows:
SELECT c.id, g AS more, c.charges, c.visits + g AS visits FROM customers c, range(3) t(g) WHERE g <> 1
-- expect:
SELECT id, more, v FROM given

-- name: a left lateral join with the best of another table
SELECT c.id, b.id AS best FROM customers c
LEFT JOIN LATERAL (SELECT o.id FROM customers o WHERE o.plan = c.plan AND o.id > c.id ORDER BY predict('value', o.*) DESC, o.id LIMIT 1) b ON true
-- expect:
SELECT c.id, b.id AS best FROM scored c
LEFT JOIN LATERAL (SELECT o.id FROM scored o WHERE o.plan = c.plan AND o.id > c.id ORDER BY v DESC, o.id LIMIT 1) b ON true

-- name: two laterals, one on top of the other
SELECT c.id, b.r FROM customers c, LATERAL (SELECT predict('value', c.*) AS charges) a,
    LATERAL (SELECT predict('risk', tenure := c.tenure, charges := a.charges, visits := c.visits) AS r) b
-- rows:
SELECT id, tenure, v AS charges, visits FROM scored
-- expect:
SELECT id, r FROM given

-- name: unnest beside a table
SELECT id, extra, predict('value', charges := charges, visits := extra) AS v FROM customers, unnest([1, 2, 30]) u(extra)
-- rows:
SELECT id, extra, charges, extra AS visits FROM customers, unnest([1, 2, 30]) u(extra)
-- expect:
SELECT id, extra, v FROM given
-- spark:
SELECT id, extra, predict('value', charges := charges, visits := extra) AS v FROM customers, explode(array(1, 2, 30)) u(extra)

-- name: three tables and a named argument
SELECT c.id, x.id AS other, predict('churn', c.*, plan := x.plan) AS p
FROM customers c JOIN logins l ON l.customer_id = c.id JOIN customers x ON x.id = l.pages
-- rows:
SELECT c.* REPLACE (x.plan AS plan), x.id AS other
FROM customers c JOIN logins l ON l.customer_id = c.id JOIN customers x ON x.id = l.pages
-- expect:
SELECT id, other, p FROM given

-- name: joins in brackets
SELECT c.id, predict('value', c.*) AS v FROM (customers c JOIN logins l ON c.id = l.customer_id) LEFT JOIN boxes b ON b.id = c.id
-- expect:
SELECT c.id, v FROM (scored c JOIN logins l ON c.id = l.customer_id) LEFT JOIN boxes b ON b.id = c.id

-- name: an unqualified column that only one table has
SELECT seen, predict('loyal', tenure, visits) AS l FROM logins, customers WHERE customer_id = id AND pages = 8
-- expect:
SELECT seen, l FROM logins, scored WHERE customer_id = id AND pages = 8

-- name: a join with a subquery that scores
SELECT l.seen, s.p FROM logins l JOIN (SELECT id, predict('churn', *) AS p FROM customers) s ON s.id = l.customer_id
-- expect:
SELECT l.seen, s.p FROM logins l JOIN scored s ON s.id = l.customer_id
