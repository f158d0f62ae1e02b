-- name: a question mark beside a call
-- parameters: [0.5]
SELECT count(*) AS n FROM customers WHERE predict_proba('churn', *, class := 'yes') > ?
-- expect:
SELECT count(*) AS n FROM scored WHERE q > 0.5

-- name: numbered parameters, used twice and out of order
-- parameters: [0.5, 'max', 3]
SELECT id, $3 AS three, $2 AS w FROM customers WHERE predict_proba('churn', *, class := 'yes') > $1 OR (plan = $2 AND id > $3)
-- expect:
SELECT id, 3 AS three, 'max' AS w FROM scored WHERE q > 0.5 OR (plan = 'max' AND id > 3)
-- spark gap: Spark has no numbered parameters

-- name: named parameters
-- parameters: {'least': 0.4, 'plan': 'pro'}
SELECT id FROM customers WHERE predict_proba('churn', *, class := 'yes') > $least AND plan = $plan
-- expect:
SELECT id FROM scored WHERE q > 0.4 AND plan = 'pro'
-- spark:
SELECT id FROM customers WHERE predict_proba('churn', *, class := 'yes') > :least AND plan = :plan

-- name: a question mark as a feature
-- parameters: [17, 'max']
SELECT id, predict('churn', *, tenure := ?, plan := ?) AS p FROM customers
-- rows:
SELECT * REPLACE (17.0 AS tenure, 'max' AS plan) FROM customers
-- expect:
SELECT id, p FROM given

-- name: question marks before, inside and behind a call
-- parameters: ['a', 12.5, 4, 40]
SELECT ? AS x, id, predict('value', visits := ? + visits, charges := charges + ?) AS v FROM customers WHERE id < ?
-- rows:
SELECT id, charges + 4 AS charges, visits + 12.5 AS visits FROM customers WHERE id < 40
-- expect:
SELECT 'a' AS x, id, v FROM given

-- name: all features by position from parameters
-- parameters: [12, 80.0, 'pro', None]
SELECT predict('churn', ?, ?, ?, ?) AS p, predict_proba('churn', 40, 20.5, 'basic', 'north')['no'] AS n
-- rows:
SELECT 12.0 AS tenure, 80.0 AS charges, 'pro' AS plan, NULL::VARCHAR AS region UNION ALL SELECT 40, 20.5, 'basic', 'north'
-- expect:
SELECT (SELECT p FROM given WHERE row = 0) AS p, (SELECT 1 - q FROM given WHERE row = 1) AS n

-- name: all features from named parameters
-- parameters: {'t': 5, 'c': 99.5, 'p': 'max', 'r': 'south'}
SELECT predict('churn', tenure := $t, charges := $c, plan := $p, region := $r) AS p
-- rows:
SELECT 5.0 AS tenure, 99.5 AS charges, 'max' AS plan, 'south' AS region
-- expect:
SELECT p FROM given
-- spark:
SELECT predict('churn', tenure := :t, charges := :c, plan := :p, region := :r) AS p

-- name: the model's name is a parameter
-- parameters: ['churn', 60]
SELECT id, predict(?, *) AS p FROM customers WHERE id > ?
-- expect:
SELECT id, p FROM scored WHERE id > 60

-- name: the model and the class are parameters
-- parameters: [0.5, 'churn', 'yes']
SELECT id FROM customers WHERE predict_proba($2, *, class := $3) > $1
-- expect:
SELECT id FROM scored WHERE q > 0.5
-- spark:
SELECT id FROM customers WHERE ? < predict_proba(?, *, class := ?)

-- name: the model is a named parameter, with a version
-- parameters: {'model': 'value/1', 'n': 10}
SELECT id, predict($model, *) AS v1 FROM customers LIMIT $n
-- expect:
SELECT id, v1 FROM scored LIMIT 10
-- spark:
SELECT id, predict(:model, *) AS v1 FROM customers LIMIT :n

-- name: two models from parameters
-- parameters: {'a': 'value', 'b': 'loyal'}
SELECT id, predict($a, *) AS v, predict($b, *) AS l FROM customers
-- expect:
SELECT id, v, l FROM scored
-- spark:
SELECT id, predict(:a, *) AS v, predict(:b, *) AS l FROM customers

-- name: a parameter in limit and offset
-- parameters: [7, 3]
SELECT id, predict('risk', *) AS r FROM customers ORDER BY id LIMIT ? OFFSET ?
-- expect:
SELECT id, r FROM scored ORDER BY id LIMIT 7 OFFSET 3

-- name: a list as a parameter
-- parameters: [[1, 2, 30, 40]]
SELECT id, predict('churn', *) AS p FROM customers WHERE list_contains(?, id)
-- expect:
SELECT id, p FROM scored WHERE id IN (1, 2, 30, 40)
-- spark:
SELECT id, predict('churn', *) AS p FROM customers WHERE array_contains(?, id)

-- name: a struct as a parameter is all features
-- parameters: [{'charges': 70.5, 'visits': 3}]
SELECT predict('value', {'charges': x.charges, 'visits': x.visits}) AS v FROM (SELECT ?::STRUCT(charges DOUBLE, visits INTEGER) AS x)
-- rows:
SELECT 70.5 AS charges, 3 AS visits
-- expect:
SELECT v FROM given
-- spark gap: Spark takes no struct as a parameter

-- name: a date and a boolean as parameters beside a call
-- parameters: {'day': '2024-03-01', 'want': True}
SELECT id FROM customers WHERE joined > $day::DATE AND predict('loyal', *) = $want
-- expect:
SELECT id FROM scored WHERE joined > DATE '2024-03-01' AND l
-- spark:
SELECT id FROM customers WHERE joined > :day::DATE AND predict('loyal', *) = :want

-- name: a question mark in a string is no parameter
-- parameters: ['yes']
SELECT id, '?' AS x, '$1' AS y FROM customers WHERE predict('churn', *) = ? -- ? $2
-- expect:
SELECT id, '?' AS x, '$1' AS y FROM scored WHERE p = 'yes'

-- name: parameters in a definition, a subquery and a having
-- parameters: [100, 2, 'no']
WITH s AS (SELECT *, predict('churn', *) AS label FROM customers WHERE id < $1) SELECT plan, count(*) AS n FROM s WHERE label IN (SELECT 'yes' UNION SELECT $3) GROUP BY plan HAVING n > $2
-- expect:
SELECT plan, count(*) AS n FROM scored WHERE id < 100 GROUP BY plan HAVING n > 2
-- spark:
WITH s AS (SELECT *, predict('churn', *) AS label FROM customers WHERE id < ?), least AS (SELECT ? AS n) SELECT plan, count(*) AS n FROM s WHERE label IN (SELECT 'yes' UNION SELECT ?) GROUP BY plan HAVING count(*) > (SELECT n FROM least)

-- name: the same named parameter inside and outside of a call
-- parameters: {'n': 4}
SELECT id, predict('loyal', tenure, $n) AS l, $n AS n FROM customers WHERE id > $n
-- rows:
SELECT id, tenure, 4 AS visits FROM customers WHERE id > 4
-- expect:
SELECT id, l, 4 AS n FROM given
-- spark:
SELECT id, predict('loyal', tenure, :n) AS l, :n AS n FROM customers WHERE id > :n

-- name: names of parameters of any case
-- parameters: {'Least': 30}
SELECT id, predict('risk', *, charges := $LEAST) AS r FROM customers WHERE id > $least
-- rows:
SELECT * REPLACE (30.0 AS charges) FROM customers WHERE id > 30
-- expect:
SELECT id, r FROM given
-- spark gap: Spark tells names of parameters apart by their case

-- name: parameters of an insert
-- parameters: [500, 'yes']
INSERT INTO customers BY NAME SELECT id + ? AS id, charges FROM customers WHERE predict('churn', *) = ?
-- expect:
INSERT INTO customers BY NAME SELECT id + 500 AS id, charges FROM scored WHERE p = 'yes'
-- then:
SELECT id, charges FROM customers

-- name: a parameter that is null
-- parameters: [None]
SELECT id, predict('risk', *, tenure := ?) AS r FROM customers
-- rows:
SELECT * REPLACE (NULL::DOUBLE AS tenure) FROM customers
-- expect:
SELECT id, r FROM given

-- name: parameters in a lambda
-- parameters: [2, 10.0]
SELECT list_transform([1, 2, 3], lambda x: predict('value', charges := x * $2, visits := $1)) AS vs
-- rows:
SELECT x * 10.0 AS charges, 2 AS visits FROM unnest([1, 2, 3]) u(x)
-- expect:
SELECT list(v ORDER BY row) AS vs FROM given
-- spark:
SELECT transform(array(1, 2, 3), x -> predict('value', visits := ?, charges := x * ?)) AS vs

-- name: a parameter with a cast as a feature
-- parameters: ['12.5', '3']
SELECT predict('value', ?::DOUBLE, CAST(? AS INTEGER)) AS v
-- rows:
SELECT 12.5 AS charges, 3 AS visits
-- expect:
SELECT v FROM given

-- name: a feature that the model never reads is a question mark
-- parameters: [5.5, 4]
SELECT id, predict('spare', charges := ?, visits := visits + ?) AS sp FROM customers
-- rows:
SELECT id, charges, visits + 4 AS visits FROM customers
-- expect:
SELECT id, sp FROM given

-- name: a feature that the model never reads is a numbered parameter
-- parameters: [5.5, 30]
SELECT id, predict('spare', $1, visits) AS sp FROM customers WHERE id < $2
-- expect:
SELECT id, sp FROM scored WHERE id < 30
-- spark:
SELECT id, predict('spare', ?, visits) AS sp FROM customers WHERE id < ?

-- name: a feature that the model never reads is a named parameter
-- parameters: {'x': 5.5, 'n': 30}
SELECT id, predict('spare', *, charges := $x) AS sp FROM customers WHERE id < $n
-- expect:
SELECT id, sp FROM scored WHERE id < 30
-- spark:
SELECT id, predict('spare', *, charges := :x) AS sp FROM customers WHERE id < :n

-- name: a question mark before a cast, outside of any call
-- parameters: ['7', '0.5']
SELECT ?::INTEGER AS x, id FROM customers WHERE predict_proba('churn', *, class := 'yes') > ?::DOUBLE
-- expect:
SELECT 7 AS x, id FROM scored WHERE q > 0.5

-- name: a file's name is a parameter
-- parameters: ['in.csv']
COPY customers TO 'in.csv'; SELECT id, predict('churn', *) AS p FROM read_csv(?)
-- expect:
SELECT id::BIGINT AS id, p FROM scored
-- spark:
INSERT OVERWRITE DIRECTORY 'in.csv' USING csv OPTIONS (header true) SELECT * FROM customers; SELECT id, predict('churn', *) AS p FROM IDENTIFIER('csv.`' || ? || '`') WITH ('header' = 'true', 'inferSchema' = 'true')

-- name: the end of a range is a parameter
-- parameters: [30]
SELECT n, predict('value', charges := n, visits := 2) AS v FROM range(?) t(n)
-- rows:
SELECT n, n AS charges, 2 AS visits FROM range(30) t(n)
-- expect:
SELECT n, v FROM given

-- name: a table's name is a parameter
-- parameters: ['customers']
SELECT id, predict('loyal', *) AS l FROM query_table(?)
-- expect:
SELECT id, l FROM scored
-- spark:
SELECT id, predict('loyal', *) AS l FROM IDENTIFIER(?)

-- name: the model's name is also shown
-- parameters: ['loyal', 20]
SELECT $1 AS model, id, predict($1, *) AS l FROM customers WHERE id < $2
-- expect:
SELECT 'loyal' AS model, id, l FROM scored WHERE id < 20
-- spark gap: Spark has no numbered parameters

-- name: a named parameter is a model's name and a value
-- parameters: {'m': 'loyal', 'n': 20}
SELECT id, $m || '!' AS m, predict($m, *) AS l FROM customers WHERE id < $n
-- expect:
SELECT id, 'loyal!' AS m, l FROM scored WHERE id < 20
-- spark:
SELECT id, :m || '!' AS m, predict(:m, *) AS l FROM customers WHERE id < :n

-- name: parameters of values in from
-- parameters: [40.5, 3, 80.25, 7]
SELECT predict('value', *) AS v FROM (VALUES (?, ?), (?, ?)) t(charges, visits)
-- rows:
SELECT * FROM (VALUES (40.5, 3), (80.25, 7)) t(charges, visits)
-- expect:
SELECT v FROM given
