-- name: a bare star
SELECT id, predict('churn', *) FROM customers
-- expect:
SELECT id, p AS "predict('churn', *)" FROM scored

-- name: the star of an alias
SELECT id, predict_proba('churn', c.*, class := 'yes') AS q FROM customers AS c
-- expect:
SELECT id, q FROM scored

-- name: the star of a table by its own name
SELECT predict_score('churn', customers.*) AS m, id FROM customers
-- expect:
SELECT m, id FROM scored

-- name: a star that a filter of column names narrows
SELECT id, predict('loyal', * SIMILAR TO 'tenure|visits') AS l FROM customers
-- expect:
SELECT id, l FROM scored
-- spark gap: Spark has no star with a filter of names

-- name: exclude one column without brackets
SELECT id, predict('churn', * EXCLUDE id) AS p FROM customers
-- expect:
SELECT id, p FROM scored
-- spark:
SELECT id, predict('churn', * EXCEPT (id)) AS p FROM customers

-- name: exclude several columns
SELECT id, predict_proba('risk', * EXCLUDE (id, name, joined), class := 2) AS r2 FROM customers
-- expect:
SELECT id, r2 FROM scored
-- spark:
SELECT id, predict_proba('risk', * EXCEPT (id, name, joined), class := 2) AS r2 FROM customers

-- name: exclude a qualified column that a join made ambiguous
SELECT id, predict('churn', * EXCLUDE (x.tenure)) AS p FROM customers c, (SELECT 1 AS tenure) x
-- expect:
SELECT id, p FROM scored
-- spark:
SELECT id, predict('churn', * EXCEPT (x.tenure)) AS p FROM customers c, (SELECT 1 AS tenure) x

-- name: exclude in the star of a table
SELECT c.id, predict('value', c.* EXCLUDE (id, name)) AS v
FROM customers c JOIN logins l ON l.customer_id = c.id WHERE l.pages > 3
-- expect:
SELECT c.id, v FROM scored c JOIN logins l ON l.customer_id = c.id WHERE l.pages > 3
-- spark:
SELECT c.id, predict('value', c.* EXCEPT (id, name)) AS v
FROM customers c JOIN logins l ON l.customer_id = c.id WHERE l.pages > 3

-- name: replace one column by an expression
SELECT id, predict('churn', * REPLACE (lower(upper(plan)) AS plan)) AS p FROM customers
-- expect:
SELECT id, p FROM scored
-- spark:
SELECT id, predict('churn', * EXCEPT (plan), plan := lower(upper(plan))) AS p FROM customers

-- name: replace with a subquery and arithmetic
SELECT id, predict('value', * REPLACE (charges + (SELECT 10) AS charges, visits // 2 AS visits)) AS v
FROM customers
-- rows:
SELECT id, charges + 10 AS charges, visits // 2 AS visits FROM customers
-- expect:
SELECT id, v FROM given
-- spark:
SELECT id, predict('value', * EXCEPT (charges, visits), charges := charges + (SELECT 10), visits := visits DIV 2) AS v
FROM customers

-- name: replace and exclude together
SELECT id, predict_proba('churn', * EXCLUDE (id) REPLACE ('pro' AS plan), class := 'no') AS n
FROM customers
-- rows:
SELECT * REPLACE ('pro' AS plan) FROM customers
-- expect:
SELECT id, 1 - q AS n FROM given
-- spark:
SELECT id, predict_proba('churn', * EXCEPT (id, plan), plan := 'pro', class := 'no') AS n
FROM customers

-- name: rename gives a column the feature's name
SELECT id, predict('loyal', * RENAME (t AS tenure)) AS l
FROM (SELECT id, tenure AS t, visits FROM customers)
-- expect:
SELECT id, l FROM scored
-- spark:
SELECT id, predict('loyal', * EXCEPT (t), tenure := t) AS l
FROM (SELECT id, tenure AS t, visits FROM customers)

-- name: rename two columns that trade their names
SELECT id, predict('value', * RENAME (charges AS visits, visits AS charges)) AS v FROM
    (SELECT id, visits AS charges, charges AS visits FROM customers)
-- expect:
SELECT id, v FROM scored
-- spark:
SELECT id, predict('value', * EXCEPT (charges, visits), visits := charges, charges := visits) AS v FROM
    (SELECT id, visits AS charges, charges AS visits FROM customers)

-- name: a named argument overrides a star
SELECT id, predict('churn', *, plan := 'max') AS p FROM customers
-- rows:
SELECT * REPLACE ('max' AS plan) FROM customers
-- expect:
SELECT id, p FROM given

-- name: two named arguments beside the star of a table
SELECT c.id, predict_proba('risk', c.*, tenure := NULL, charges := c.charges * 1.1, class := 0) AS r0
FROM customers c
-- rows:
SELECT * REPLACE (NULL::DOUBLE AS tenure, charges * 1.1 AS charges) FROM customers
-- expect:
SELECT id, r0 FROM given

-- name: columns by a regular expression
SELECT id, predict('churn', COLUMNS('tenure|charges|plan|region')) AS p FROM customers
-- expect:
SELECT id, p FROM scored
-- spark gap: Spark has no COLUMNS(..)

-- name: columns of a table's star with exclude
SELECT c.id, predict('value', COLUMNS(c.* EXCLUDE id)) AS v
FROM customers c JOIN (SELECT 5 AS id) x ON c.id > x.id
-- expect:
SELECT id, v FROM scored WHERE id > 5
-- spark gap: Spark has no COLUMNS(..)

-- name: columns by a lambda
SELECT id, predict('risk', COLUMNS(lambda c: c IN ('tenure', 'charges', 'visits'))) AS r FROM customers
-- expect:
SELECT id, r FROM scored
-- spark gap: Spark has no COLUMNS(..)

-- name: unpacked columns
SELECT id, predict('value', *COLUMNS('charges|visits')) AS v FROM customers
-- expect:
SELECT id, v FROM scored
-- spark gap: Spark has no COLUMNS(..)

-- name: a star like a pattern
SELECT id, predict('haus', * EXCLUDE (id)) AS h FROM (SELECT row_number() OVER () AS id, * FROM haus)
-- expect:
SELECT row_number() OVER () AS id, h FROM haus_scored
-- spark:
SELECT id, predict('haus', * EXCEPT (id)) AS h FROM (SELECT row_number() OVER (ORDER BY NULL) AS id, * FROM haus)

-- name: a star beside other stars in one select list
SELECT *, predict('churn', *) AS p, predict('risk', *) AS r FROM customers
-- expect:
SELECT * EXCLUDE (q, m, pm, r0, r1, r2, rm, rp, v, v1, l, lt, s, sp) FROM scored

-- name: the select list has exclude and the call a star
SELECT * EXCLUDE (name, joined), predict('loyal', *) AS l FROM customers
-- expect:
SELECT * EXCLUDE (name, joined, p, q, m, pm, r, r0, r1, r2, rm, rp, v, v1, lt, s, sp) FROM scored
-- spark:
SELECT * EXCEPT (name, joined), predict('loyal', *) AS l FROM customers

-- name: a call as the value of replace in the select list
SELECT * EXCLUDE (name, joined, tenure, region, visits) REPLACE (predict('churn', *) AS plan)
FROM customers
-- expect:
SELECT id, charges, p AS plan FROM scored
-- spark:
SELECT * EXCEPT (name, joined, tenure, region, visits, plan), predict('churn', *) AS plan
FROM customers

-- name: stars over a natural join
SELECT id, predict('churn', *) AS p
FROM (SELECT id, tenure, plan FROM customers) NATURAL JOIN (SELECT id, charges, region FROM customers)
-- expect:
SELECT id, p FROM scored

-- name: the same star in three functions
SELECT id, predict('risk', *) AS r, predict_proba('risk', *) AS rp, predict_score('risk', *) AS rm
FROM customers
-- expect:
SELECT id, r, rp, rm FROM scored

-- name: a star over values
SELECT predict('value', *) AS v FROM (VALUES (50.0, 3), (70.5, 0), (0.0, -1)) AS t(charges, visits)
-- rows:
SELECT * FROM (VALUES (50.0, 3), (70.5, 0), (0.0, -1)) AS t(charges, visits)
-- expect:
SELECT v FROM given

-- name: a star over renamed columns of an alias
SELECT predict('loyal', *) AS l, k FROM (SELECT id, tenure, visits FROM customers) AS t(k, tenure, visits)
-- expect:
SELECT l, id AS k FROM scored

-- name: a star with comments inside
SELECT id, predict('churn' /* the model */, * -- all columns
    ) AS p FROM customers
-- expect:
SELECT id, p FROM scored

-- name: a star in capitals and odd blanks
SELECT   Id,PREDICT  (  'CHURN'  ,
	*  )   AS   p   FROM   CUSTOMERS
-- expect:
SELECT id AS "id", p FROM scored

-- name: the columns of replace keep their names beside other items
SELECT c.* EXCLUDE (name, joined, tenure, region) REPLACE (predict('value', c.*) AS charges, -1 AS visits), 'x' AS x
FROM customers c
-- expect:
SELECT id, v AS charges, plan, -1 AS visits, 'x' AS x FROM scored
-- spark:
SELECT c.* EXCEPT (name, joined, tenure, region, charges, plan, visits), predict('value', c.*) AS charges, plan, -1 AS visits, 'x' AS x
FROM customers c

-- name: an expression of several columns keeps their names
SELECT id, COLUMNS('charges|visits') + predict('value', *) FROM customers
-- expect:
SELECT id, charges + v AS charges, visits + v AS visits FROM scored
-- spark gap: Spark has no COLUMNS(..)

-- name: an unnested struct of calls keeps the names of its fields
SELECT id, unnest({'label': predict('churn', *), 'worth': predict('value', *)}) FROM customers
-- expect:
SELECT id, p AS label, v AS worth FROM scored
-- spark:
SELECT id, inline(array(named_struct('label', predict('churn', *), 'worth', predict('value', *)))) FROM customers

-- name: columns by a list of names
SELECT id, predict('churn', COLUMNS(['tenure', 'charges', 'plan', 'region'])) AS p FROM customers
-- expect:
SELECT id, p FROM scored
-- spark gap: Spark has no COLUMNS(..)

-- name: all columns unpacked
SELECT id, predict('churn', *COLUMNS(*)) AS p FROM customers
-- expect:
SELECT id, p FROM scored
-- spark gap: Spark has no COLUMNS(..)

-- name: a star over generated columns
SELECT predict('value', *) AS v FROM made
-- setup:
CREATE TABLE made (visits INTEGER, half DOUBLE, charges DOUBLE GENERATED ALWAYS AS (half * 2) VIRTUAL); INSERT INTO made SELECT visits, charges / 2 FROM customers
-- expect:
SELECT v FROM scored
-- spark gap: Spark's own tables have no generated columns
