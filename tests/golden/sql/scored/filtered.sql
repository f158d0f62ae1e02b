-- name: the same call in where and in the select list
SELECT id, predict('churn', *) AS p, predict_proba('churn', *, class := 'yes') AS q FROM customers WHERE predict_proba('churn', *, class := 'yes') > 0.5
-- expect:
SELECT id, p, q FROM scored WHERE q > 0.5

-- name: all columns and a call, filtered by the call
SELECT *, predict('risk', *) AS r FROM customers WHERE predict('risk', *) = 1
-- expect:
SELECT id, name, tenure, charges, plan, region, visits, joined, r FROM scored WHERE r = 1

-- name: the star of an alias beside a filtered call
SELECT c.*, predict_score('churn', c.*) AS m FROM customers AS c WHERE predict('churn', c.*) = 'no' AND c.plan = 'max'
-- expect:
SELECT id, name, tenure, charges, plan, region, visits, joined, m FROM scored WHERE p = 'no' AND plan = 'max'

-- name: exclude, replace and rename beside a filtered call
SELECT * EXCLUDE (name, joined) REPLACE (charges + 1 AS charges) RENAME (visits AS calls), predict('churn', *) AS p FROM customers WHERE predict('churn', *) = 'yes'
-- expect:
SELECT id, tenure, charges + 1 AS charges, plan, region, visits AS calls, p FROM scored WHERE p = 'yes'
-- spark:
SELECT * EXCEPT (name, joined, charges, plan, region, visits), charges + 1 AS charges, plan, region, visits AS calls, predict('churn', *) AS p FROM customers WHERE predict('churn', *) = 'yes'

-- name: count of all rows that a call filters
SELECT count(*) AS n, count(*) FILTER (predict('risk', *) > 0) AS r FROM customers WHERE predict('risk', *) < 2
-- expect:
SELECT count(*) AS n, count(*) FILTER (r > 0) AS r FROM scored WHERE r < 2
-- spark:
SELECT count(*) AS n, count(*) FILTER (WHERE predict('risk', *) > 0) AS r FROM customers WHERE predict('risk', *) < 2

-- name: the whole row beside a filtered call
SELECT c.id, c AS whole, predict('loyal', c) AS l FROM customers c WHERE predict('loyal', c)
-- expect:
SELECT c.id, {'id': id, 'name': name, 'tenure': tenure, 'charges': charges, 'plan': plan, 'region': region, 'visits': visits, 'joined': joined} AS whole, l FROM scored c WHERE l
-- spark:
SELECT c.id, struct(c.*) AS whole, predict('loyal', c.*) AS l FROM customers c WHERE predict('loyal', c.*)

-- name: distinct rows that a call filters
SELECT DISTINCT plan, region, predict('loyal', *) AS l FROM customers WHERE predict('loyal', *) IS NOT NULL
-- expect:
SELECT DISTINCT plan, region, l FROM scored

-- name: a guard before a model that refuses missing values
SELECT id, predict('spare', charges := charges, visits := tenure) AS sp FROM customers WHERE tenure IS NOT NULL AND predict('spare', charges := charges, visits := tenure) > 0.2
-- rows:
SELECT id, charges, tenure AS visits FROM customers WHERE tenure IS NOT NULL
-- expect:
SELECT id, sp FROM given WHERE sp > 0.2

-- name: a guard of a case around a model that refuses missing values
SELECT id, CASE WHEN tenure IS NOT NULL THEN predict('spare', charges := charges, visits := tenure) ELSE -1 END AS sp FROM customers
-- rows:
SELECT id, charges, tenure AS visits FROM customers WHERE tenure IS NOT NULL
-- expect:
SELECT c.id, coalesce(sp, -1) AS sp FROM customers c LEFT JOIN given g USING (id)

-- name: guards of a case in where and in the select list
SELECT id, CASE WHEN tenure IS NOT NULL THEN predict('spare', charges := charges, visits := tenure) END AS sp FROM customers
WHERE CASE WHEN tenure IS NULL THEN true ELSE predict('spare', charges := charges, visits := tenure) > 0.2 END
-- rows:
SELECT id, charges, tenure AS visits FROM customers WHERE tenure IS NOT NULL
-- expect:
SELECT c.id, sp FROM customers c LEFT JOIN given g USING (id) WHERE sp > 0.2 OR tenure IS NULL

-- name: a guard of a linear model
SELECT id, predict('value', charges := tenure, visits := visits) AS v FROM customers WHERE tenure IS NOT NULL AND predict('value', charges := tenure, visits := visits) > 0
-- rows:
SELECT id, tenure AS charges, visits FROM customers WHERE tenure IS NOT NULL
-- expect:
SELECT id, v FROM given WHERE v > 0

-- name: missing values filled in the call
SELECT id, predict('spare', charges := charges, visits := coalesce(tenure, 0)) AS sp FROM customers WHERE predict('spare', charges := charges, visits := coalesce(tenure, 0)) < 0.9
-- rows:
SELECT id, charges, coalesce(tenure, 0) AS visits FROM customers
-- expect:
SELECT id, sp FROM given WHERE sp < 0.9

-- name: where, group by, having and order by
SELECT plan, avg(predict('value', *)) AS v, max(predict_proba('risk', *, class := 1)) AS r1 FROM customers WHERE predict('risk', *) <> 0 GROUP BY plan HAVING max(predict_proba('risk', *, class := 1)) > 0.1 ORDER BY min(predict_proba('risk', *, class := 2))
-- expect:
SELECT plan, avg(v) AS v, max(r1) AS r1 FROM scored WHERE r <> 0 GROUP BY plan HAVING max(r1) > 0.1 ORDER BY min(r2)

-- name: where and order by, with a limit
SELECT id FROM customers WHERE predict('churn', *) = 'yes' ORDER BY predict_score('churn', *) DESC, id LIMIT 6
-- expect:
SELECT id FROM scored WHERE p = 'yes' ORDER BY m DESC, id LIMIT 6

-- name: two models, each in where and in the select list
SELECT id, predict('churn', *) AS p, predict('risk', *) AS r FROM customers WHERE predict('risk', *) > 0 OR predict('churn', *) = 'yes'
-- expect:
SELECT id, p, r FROM scored WHERE r > 0 OR p = 'yes'

-- name: an inner and an outer block, both filtered by a call
SELECT c.id, predict('loyal', c.*) AS l, (SELECT count(*) FROM customers i WHERE predict('loyal', i.*) AND i.plan = c.plan) AS n FROM customers c WHERE predict('loyal', c.*)
-- expect:
SELECT c.id, c.l, (SELECT count(*) FROM scored i WHERE i.l AND i.plan = c.plan) AS n FROM scored c WHERE c.l

-- name: an exists that needs the outer row, filtered by a call
SELECT c.id, predict('churn', c.*) AS p FROM customers c WHERE predict('churn', c.*) = 'yes' AND EXISTS (SELECT 1 FROM logins WHERE customer_id = c.id AND customers_pages(pages) > 3)
-- setup:
CREATE MACRO customers_pages(n) AS n + 0
-- expect:
SELECT c.id, c.p FROM scored c WHERE c.p = 'yes' AND EXISTS (SELECT 1 FROM logins WHERE customer_id = c.id AND pages > 3)
-- spark setup:
CREATE OR REPLACE TEMPORARY FUNCTION customers_pages(n INT) RETURNS INT RETURN n + 0

-- name: rowid beside a filtered call
SELECT rowid, predict('churn', *) AS p FROM customers WHERE predict('churn', *) = 'no'
-- expect:
SELECT rowid, p FROM scored WHERE p = 'no'
-- spark:
SELECT _metadata.row_index AS rowid, predict('churn', *) AS p FROM customers WHERE predict('churn', *) = 'no'

-- name: a sample of a table, filtered by a call
SELECT id, predict('churn', *) AS p FROM customers TABLESAMPLE 100% WHERE predict('churn', *) = 'yes'
-- expect:
SELECT id, p FROM scored WHERE p = 'yes'
-- spark:
SELECT id, predict('churn', *) AS p FROM customers TABLESAMPLE (100 PERCENT) WHERE predict('churn', *) = 'yes'

-- name: using sample behind a filter
SELECT id, predict('risk', *) AS r FROM customers WHERE predict('risk', *) = 2 USING SAMPLE 100%
-- expect:
SELECT id, r FROM scored WHERE r = 2
-- spark:
FROM customers |> WHERE predict('risk', *) = 2 |> TABLESAMPLE (100 PERCENT) |> SELECT id, predict('risk', *) AS r

-- name: an alias with other names for its columns, filtered by a call
SELECT c.k, predict('churn', c.*) AS p FROM customers AS c(k) WHERE predict('churn', c.*) = 'no'
-- expect:
SELECT id AS k, p FROM scored WHERE p = 'no'
-- spark:
SELECT c.k, predict('churn', c.*) AS p FROM customers AS c(k, name, tenure, charges, plan, region, visits, joined) WHERE predict('churn', c.*) = 'no'

-- name: a join, filtered by a call of one side
SELECT c.id, l.pages, predict('risk', c.*) AS r FROM customers c JOIN logins l ON l.customer_id = c.id WHERE predict('risk', c.*) = 1
-- expect:
SELECT c.id, l.pages, r FROM scored c JOIN logins l ON l.customer_id = c.id WHERE r = 1

-- name: a filter in qualify and where
SELECT id, predict('loyal', *) AS l FROM customers WHERE predict('loyal', *) QUALIFY row_number() OVER (PARTITION BY predict('loyal', *), plan ORDER BY predict_proba('loyal', *, class := true), id) = 2
-- expect:
SELECT id, l FROM scored WHERE l QUALIFY row_number() OVER (PARTITION BY l, plan ORDER BY lt, id) = 2

-- name: a column that has the name of the label
SELECT predict, predict('churn', *) AS predict2 FROM (SELECT *, 'x' AS predict FROM customers) s WHERE predict('churn', *) = 'yes' AND predict = 'x'
-- expect:
SELECT 'x' AS predict, p AS predict2 FROM scored WHERE p = 'yes'

-- name: a union of filtered arms with stars
SELECT *, predict('churn', *) AS p FROM (SELECT id, tenure, charges, plan, region FROM customers) WHERE predict('churn', *) = 'yes' UNION ALL SELECT *, 'x' FROM (SELECT id, tenure, charges, plan, region FROM customers WHERE id < 3)
-- expect:
SELECT id, tenure, charges, plan, region, p FROM scored WHERE p = 'yes' UNION ALL SELECT id, tenure, charges, plan, region, 'x' FROM customers WHERE id < 3

-- name: a filtered call with parameters inside and outside
-- parameters: [3, 0.4, 'max']
SELECT id, predict('risk', *, visits := $1) AS r FROM customers WHERE predict_proba('risk', *, visits := $1, class := 0) > $2 AND plan = $3
-- rows:
SELECT id, tenure, charges, 3 AS visits FROM customers WHERE plan = 'max'
-- expect:
SELECT id, r FROM given WHERE r0 > 0.4
-- spark:
SELECT id, predict('risk', *, visits := ?) AS r FROM customers WHERE predict_proba('risk', *, visits := 3, class := 0) > ? AND plan = ?

-- name: a select without from, filtered by a call
SELECT predict('value', 40, 3) AS v WHERE predict('value', 40, 3) < 1000
-- rows:
SELECT 40 AS charges, 3 AS visits
-- expect:
SELECT v FROM given

-- name: an alias of the select list used in where
SELECT id, predict('risk', *) AS r, predict_proba('risk', *, class := 1) AS r1 FROM customers WHERE r = 1 AND r1 > 0.3
-- expect:
SELECT id, r, r1 FROM scored WHERE r = 1 AND r1 > 0.3
-- spark:
FROM customers |> SELECT id, predict('risk', *) AS r, predict_proba('risk', *, class := 1) AS r1 |> WHERE r = 1 AND r1 > 0.3

-- name: from-first with columns, filtered by a call
FROM customers c SELECT c.*, predict('loyal', c.*) AS l WHERE predict('loyal', c.*) AND c.id > 3
-- expect:
FROM scored SELECT id, name, tenure, charges, plan, region, visits, joined, l WHERE l AND id > 3

-- name: the star of a row in a nested query, filtered by a call
-- since: 2.0
SELECT c.id, predict('churn', c.*) AS p, (SELECT len(to_json(x)::VARCHAR) FROM (SELECT c.*) x) AS n FROM customers c WHERE predict('churn', c.*) = 'yes'
-- expect:
SELECT c.id, s.p, len(to_json(c)::VARCHAR) AS n FROM customers c JOIN scored s USING (id) WHERE s.p = 'yes'
-- spark:
SELECT c.id, predict('churn', c.*) AS p, (SELECT length(to_json(struct(x.*), map('ignoreNullFields', 'false'))) FROM (SELECT c.*) x) AS n FROM customers c WHERE predict('churn', c.*) = 'yes'

-- name: a row as json by the name of its table, filtered by a call
SELECT id, to_json(customers) AS j, predict('risk', *) AS r FROM customers WHERE predict('risk', *) = 1
-- expect:
SELECT customers.id, to_json(customers) AS j, r FROM customers JOIN scored USING (id) WHERE r = 1
-- spark:
SELECT id, to_json(struct(customers.*), map('ignoreNullFields', 'false')) AS j, predict('risk', *) AS r FROM customers WHERE predict('risk', *) = 1

-- name: an inner query with the outer row in its call, filtered
SELECT c.id, (SELECT predict('loyal', tenure := i.tenure, visits := c.visits) FROM customers i WHERE i.id = c.id // 2 AND predict('loyal', tenure := i.tenure, visits := c.visits) IS NOT NULL) AS l FROM customers c
-- rows:
SELECT c.id, i.tenure, c.visits FROM customers c JOIN customers i ON i.id = c.id // 2
-- expect:
SELECT id, l FROM given
-- spark:
SELECT c.id, (SELECT predict('loyal', tenure := i.tenure, visits := c.visits) FROM customers i WHERE i.id = c.id DIV 2 AND predict('loyal', tenure := i.tenure, visits := c.visits) IS NOT NULL) AS l FROM customers c

-- name: an alias of the select list in a filtered call
SELECT id, charges * 2 AS twice, predict('value', charges := twice, visits := visits) AS v, predict('risk', tenure, twice, visits) AS r FROM customers WHERE predict('risk', tenure, twice, visits) > 0
-- rows:
SELECT id, tenure, charges * 2 AS charges, visits FROM customers
-- expect:
SELECT id, charges AS twice, v, r FROM given WHERE r > 0
-- spark gap: WHERE of Spark knows no alias of the select list

-- name: columns qualified by the schema beside a filtered call
SELECT main.customers.id, predict('risk', *) AS r FROM main.customers WHERE predict('risk', *) = 1 AND main.customers.plan <> 'pro'
-- expect:
SELECT id, r FROM scored WHERE r = 1 AND plan <> 'pro'
-- spark:
SELECT corpus.customers.id, predict('risk', *) AS r FROM corpus.customers WHERE predict('risk', *) = 1 AND corpus.customers.plan <> 'pro'

-- name: a correlated subquery by the table's name beside a filtered call
SELECT id, predict('churn', *) AS p FROM customers WHERE predict('churn', *) = 'yes' AND id IN (SELECT customer_id FROM logins WHERE logins.pages < customers.visits)
-- expect:
SELECT id, p FROM scored WHERE p = 'yes' AND id IN (SELECT customer_id FROM logins WHERE logins.pages < scored.visits)

-- name: an alias of a column that a star also has, filtered by a call
SELECT *, charges + 1 AS charges, predict('risk', *) AS r FROM (SELECT id, tenure, charges, visits FROM customers) WHERE predict('risk', *) = 2 ORDER BY ALL
-- expect:
SELECT id, tenure, charges, visits, charges + 1 AS charges, r FROM scored WHERE r = 2 ORDER BY id

-- name: exists with a star, filtered by a call
SELECT id, predict('risk', *) AS r FROM customers WHERE predict('risk', *) < 2 AND EXISTS (SELECT * FROM logins WHERE customer_id = id)
-- expect:
SELECT id, r FROM scored WHERE r < 2 AND id IN (SELECT customer_id FROM logins)

-- name: an except of all columns, filtered by a call
SELECT * FROM customers WHERE predict('risk', *) = 1 OR predict_proba('risk', *, class := 2) > 0.9 EXCEPT SELECT * FROM customers WHERE plan = 'max'
-- expect:
SELECT id, name, tenure, charges, plan, region, visits, joined FROM scored WHERE (r = 1 OR r2 > 0.9) AND plan <> 'max'

-- name: a multiplication that looks like a star, filtered by a call
SELECT 2 * predict('risk', *) AS a, charges*visits AS b, count(*) OVER () AS c FROM customers WHERE predict('risk', *) * 2 > 0
-- expect:
SELECT 2 * r AS a, charges * visits AS b, count(*) OVER () AS c FROM scored WHERE r > 0

-- name: a filtered view in a view
CREATE VIEW risky AS SELECT *, predict('risk', *) AS r FROM customers WHERE predict('risk', *) > 0; CREATE VIEW more AS SELECT *, predict('churn', *) AS p FROM risky WHERE predict('churn', *) = 'yes'; SELECT * FROM more
-- expect:
SELECT id, name, tenure, charges, plan, region, visits, joined, r, p FROM scored WHERE r > 0 AND p = 'yes'
-- spark:
CREATE TEMPORARY VIEW risky AS SELECT *, predict('risk', *) AS r FROM customers WHERE predict('risk', *) > 0; CREATE TEMPORARY VIEW more AS SELECT *, predict('churn', *) AS p FROM risky WHERE predict('churn', *) = 'yes'; SELECT * FROM more

-- name: create table as with a filtered call
CREATE TABLE out AS SELECT *, predict_proba('risk', *, class := 1) AS r1 FROM customers WHERE predict('risk', *) > 0
-- expect:
CREATE TABLE out AS SELECT id, name, tenure, charges, plan, region, visits, joined, r1 FROM scored WHERE r > 0
-- then:
DESCRIBE out; FROM out
-- spark then:
SELECT * FROM out

-- name: a sampled filter of a values list
SELECT x.*, predict('value', x.*) AS v, predict('spare', x.*) AS sp FROM (VALUES (10.5, 3), (99.5, 20), (50.0, 12)) AS x(charges, visits) WHERE predict('spare', x.*) >= 0
-- rows:
SELECT * FROM (VALUES (10.5, 3), (99.5, 20), (50.0, 12)) AS x(charges, visits)
-- expect:
SELECT charges::DECIMAL(3, 1) AS charges, visits, v, sp FROM given
