-- name: a derived table
SELECT id, q FROM (SELECT id, predict_proba('churn', *, class := 'yes') AS q FROM customers) WHERE q < 0.4
-- expect:
SELECT id, q FROM scored WHERE q < 0.4

-- name: three levels of derived tables
SELECT max(x) AS m FROM (SELECT y + 1 AS x FROM (SELECT predict('value', *) AS y FROM (SELECT * FROM customers WHERE plan = 'max')))
-- expect:
SELECT max(v + 1) AS m FROM scored WHERE plan = 'max'

-- name: a correlated subquery with the star of the inner table
SELECT c.id, (SELECT predict('churn', i.*) FROM customers i WHERE i.id = c.id) AS p FROM customers c
-- expect:
SELECT id, p FROM scored

-- name: a correlated subquery that mixes both tables
SELECT c.id, (SELECT predict('churn', c.tenure, i.charges, i.plan, c.region) FROM customers i WHERE i.id = c.id) AS p
FROM customers c
-- expect:
SELECT id, p FROM scored

-- name: a correlated subquery with the star of the outer table
SELECT c.id, (SELECT max(l.pages) FROM logins l WHERE l.customer_id = c.id AND predict('loyal', c.*)) AS m FROM customers c
-- expect:
SELECT c.id, (SELECT max(l.pages) FROM logins l WHERE l.customer_id = c.id AND c.l) AS m FROM scored c

-- name: exists with an outer call
SELECT id FROM customers c WHERE EXISTS (SELECT 1 FROM logins WHERE customer_id = c.id AND predict('churn', c.*) = 'no')
-- expect:
SELECT id FROM scored c WHERE EXISTS (SELECT 1 FROM logins WHERE customer_id = c.id) AND p = 'no'

-- name: not exists without a from
SELECT count(*) AS n FROM customers WHERE NOT EXISTS (SELECT 1 WHERE predict_proba('churn', customers.*, class := 'yes') > 0.5)
-- expect:
SELECT count(*) AS n FROM scored WHERE NOT q > 0.5

-- name: in a subquery of calls
SELECT seen FROM logins WHERE customer_id IN (SELECT id FROM customers WHERE predict('risk', *) = 0)
-- expect:
SELECT seen FROM logins WHERE customer_id IN (SELECT id FROM scored WHERE r = 0)

-- name: a tuple in a subquery
SELECT id FROM customers WHERE (plan, predict('churn', *)) IN (SELECT plan, 'yes' FROM customers WHERE id < 4)
-- expect:
SELECT id FROM scored WHERE p = 'yes' AND plan IN (SELECT plan FROM customers WHERE id < 4)

-- name: any and all
SELECT id FROM customers WHERE predict('value', *) >= ALL (SELECT predict('value', x.*) FROM customers x WHERE x.plan = customers.plan)
-- expect:
SELECT id FROM scored WHERE v >= ALL (SELECT x.v FROM scored x WHERE x.plan = scored.plan)
-- spark:
SELECT id FROM customers WHERE predict('value', *) >= (SELECT max(predict('value', x.*)) FROM customers x WHERE x.plan = customers.plan)

-- name: above the average of all
SELECT id FROM customers WHERE predict('value', *) > (SELECT avg(predict('value', *)) FROM customers)
-- expect:
SELECT id FROM scored WHERE v > (SELECT avg(v) FROM scored)

-- name: above the average of its group
SELECT id FROM customers c WHERE predict('value', c.*) > (SELECT avg(predict('value', i.*)) FROM customers i WHERE i.plan = c.plan)
-- expect:
SELECT id FROM scored c WHERE v > (SELECT avg(i.v) FROM scored i WHERE i.plan = c.plan)

-- name: an array of a subquery
SELECT plan, ARRAY(SELECT predict('churn', i.*) FROM customers i WHERE i.plan = o.plan AND i.id < 20 ORDER BY i.id) AS ps
FROM (SELECT DISTINCT plan FROM customers) o
-- expect:
SELECT plan, ARRAY(SELECT i.p FROM scored i WHERE i.plan = o.plan AND i.id < 20 ORDER BY i.id) AS ps
FROM (SELECT DISTINCT plan FROM customers) o
-- spark:
SELECT plan, (SELECT transform(array_sort(collect_list(struct(i.id, predict('churn', i.*) AS p))), s -> s.p) FROM customers i WHERE i.plan = o.plan AND i.id < 20) AS ps
FROM (SELECT DISTINCT plan FROM customers) o

-- name: a feature is a subquery
SELECT id, predict('value', charges := (SELECT avg(x.charges) FROM customers x WHERE x.plan = c.plan), visits := c.visits) AS v
FROM customers c
-- rows:
SELECT id, (SELECT avg(x.charges) FROM customers x WHERE x.plan = c.plan) AS charges, visits FROM customers c
-- expect:
SELECT id, v FROM given

-- name: a feature is an aggregate
SELECT plan, predict('value', avg(charges), max(visits)) AS v FROM customers GROUP BY plan
-- rows:
SELECT plan, avg(charges) AS charges, max(visits) AS visits FROM customers GROUP BY plan
-- expect:
SELECT plan, v FROM given

-- name: features are aliases of aggregates
SELECT region, avg(tenure) AS t, avg(visits) AS n, predict('loyal', t, n) AS l FROM customers GROUP BY region
-- rows:
SELECT region, avg(tenure) AS tenure, avg(visits) AS visits FROM customers GROUP BY region
-- expect:
SELECT region, tenure AS t, visits AS n, l FROM given

-- name: having on a call over aggregates
SELECT plan FROM customers GROUP BY plan HAVING predict('value', charges := avg(charges), visits := min(visits)) > 0
-- rows:
SELECT plan, avg(charges) AS charges, min(visits) AS visits FROM customers GROUP BY plan
-- expect:
SELECT plan FROM given WHERE v > 0

-- name: order by a call over aggregates
SELECT plan, count(*) AS n FROM customers GROUP BY plan ORDER BY predict('value', sum(charges), sum(visits)) DESC
-- rows:
SELECT plan, count(*) AS n, sum(charges) AS charges, sum(visits)::DOUBLE AS visits FROM customers GROUP BY plan
-- expect:
SELECT plan, n FROM given ORDER BY v DESC

-- name: the star of an aggregating subquery
SELECT plan, predict('value', *) AS v FROM (SELECT plan, median(charges) AS charges, median(visits) AS visits FROM customers GROUP BY ALL)
-- rows:
SELECT plan, median(charges) AS charges, median(visits) AS visits FROM customers GROUP BY ALL
-- expect:
SELECT plan, v FROM given

-- name: a subquery with its own names for columns
SELECT k, predict('loyal', *) AS l FROM (SELECT id, tenure, visits FROM customers) s(k, tenure, visits) WHERE k % 2 = 0
-- expect:
SELECT id AS k, l FROM scored WHERE id % 2 = 0

-- name: a scalar subquery in the select list
SELECT (SELECT count(*) FROM customers WHERE predict('churn', *) = 'yes') AS yes, (SELECT count(*) FROM customers) AS n
-- expect:
SELECT (SELECT count(*) FROM scored WHERE p = 'yes') AS yes, (SELECT count(*) FROM customers) AS n

-- name: an inner name hides an outer one
SELECT c.id, (SELECT predict('value', charges, visits) FROM (SELECT 10.0 AS charges, c.visits AS visits)) AS v FROM customers c
-- rows:
SELECT id, 10.0 AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given

-- name: a call two levels below its table
SELECT c.id, (SELECT (SELECT predict('churn', c.*))) AS p FROM customers c
-- expect:
SELECT id, p FROM scored
-- spark gap: a subquery of Spark sees only the columns of the query right around it

-- name: a subquery in order by
SELECT id FROM customers c ORDER BY (SELECT predict('value', c.*)) DESC, id LIMIT 7
-- expect:
SELECT id FROM scored ORDER BY v DESC, id LIMIT 7
-- spark gap: Spark takes no correlated subquery in ORDER BY

-- name: a subquery compared by row
SELECT id FROM customers c WHERE (predict('churn', c.*), c.plan) = ('yes', 'max')
-- expect:
SELECT id FROM scored WHERE p = 'yes' AND plan = 'max'
