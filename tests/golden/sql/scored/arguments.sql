-- name: named arguments
SELECT id, predict('churn', tenure := t, plan := p2, charges := c, region := r) AS p
FROM (SELECT id, tenure t, plan p2, charges c, region r FROM customers)
-- expect:
SELECT id, p FROM scored

-- name: named arguments with arrows
SELECT id, predict('value', visits => visits, charges => charges) AS v FROM customers
-- expect:
SELECT id, v FROM scored

-- name: named arguments of any case and quoted
SELECT id, predict('loyal', "TENURE" := tenure, Visits := visits) AS l FROM customers
-- expect:
SELECT id, l FROM scored
-- spark:
SELECT id, predict('loyal', `TENURE` := tenure, Visits := visits) AS l FROM customers

-- name: a bare list binds by position
SELECT id, predict('churn', tenure, charges, plan, region) AS p FROM customers
-- expect:
SELECT id, p FROM scored

-- name: a bare list of expressions
SELECT id, predict('value', round(charges * 2) / 2, abs(visits - 5)) AS v FROM customers
-- rows:
SELECT id, round(charges * 2) / 2 AS charges, abs(visits - 5) AS visits FROM customers
-- expect:
SELECT id, v FROM given

-- name: qualified columns by position
SELECT c.id, predict('risk', c.tenure, c.charges, c.visits) AS r FROM customers c
-- expect:
SELECT id, r FROM scored

-- name: a struct literal
SELECT id, predict('churn', {'tenure': tenure, 'plan': plan, 'charges': charges, 'region': region}) AS p
FROM customers
-- expect:
SELECT id, p FROM scored

-- name: a struct literal with bare and quoted keys
SELECT id, predict('value', {charges: charges, "visits": visits, other: name}) AS v FROM customers
-- expect:
SELECT id, v FROM scored

-- name: struct_pack and row functions
SELECT id, predict('loyal', struct_pack(visits := visits, tenure := tenure)) AS l FROM customers
-- expect:
SELECT id, l FROM scored
-- spark:
SELECT id, predict('loyal', struct(visits, tenure)) AS l FROM customers

-- name: a row of the table as struct
SELECT id, predict('churn', c) AS p FROM customers c
-- expect:
SELECT id, p FROM scored
-- spark:
SELECT id, predict('churn', struct(c.*)) AS p FROM customers c

-- name: literals only, without a table
SELECT predict('churn', {'tenure': 3, 'plan': 'basic', 'charges': 30.5, 'region': 'north'}) AS p
-- rows:
SELECT 3.0 AS tenure, 'basic' AS plan, 30.5 AS charges, 'north' AS region
-- expect:
SELECT p FROM given

-- name: NULL literals are missing values
SELECT predict_proba('churn', tenure := NULL, plan := 'max', charges := 99, region := NULL, class := 'yes') AS q
-- rows:
SELECT NULL::DOUBLE AS tenure, 'max' AS plan, 99.0 AS charges, NULL::VARCHAR AS region
-- expect:
SELECT q FROM given

-- name: the probabilities of all classes
SELECT id, predict_proba('churn', *) AS pm FROM customers
-- expect:
SELECT id, pm FROM scored

-- name: one entry of the map of probabilities
SELECT id, predict_proba('churn', *)['yes'] AS q FROM customers
-- expect:
SELECT id, q FROM scored

-- name: entries of the map in every clause, and keys that are no class
SELECT predict_proba('risk', *)[1] > 0.3 AS likely, count(*) AS n,
    sum(predict_proba('risk', *)[2]) AS r2, max(predict_proba('risk', *)[7]) AS none,
    max(predict_proba('risk', *)[-1]) AS negative
FROM customers
WHERE predict_proba('risk', *)[0] BETWEEN 0.01 AND 0.99 AND 0.02 < predict_proba('churn', *) ['yes']
GROUP BY predict_proba('risk', *)[1] > 0.3
-- expect:
SELECT r1 > 0.3 AS likely, count(*) AS n, sum(r2) AS r2, NULL::DOUBLE AS none,
    NULL::DOUBLE AS negative
FROM scored WHERE r0 BETWEEN 0.01 AND 0.99 AND q > 0.02 GROUP BY r1 > 0.3

-- name: map functions over the probabilities
SELECT id, map_keys(predict_proba('risk', *)) AS k, list_max(map_values(predict_proba('risk', *))) AS best
FROM customers
-- expect:
SELECT id, [0::BIGINT, 1, 2] AS k, greatest(r0, r1, r2) AS best FROM scored
-- spark:
SELECT id, map_keys(predict_proba('risk', *)) AS k, array_max(map_values(predict_proba('risk', *))) AS best
FROM customers

-- name: a class that is a number
SELECT id, predict_proba('risk', *, class := 1) AS r1, predict_proba('risk', *, class := '2') AS r2
FROM customers
-- expect:
SELECT id, r1, r2 FROM scored

-- name: a class that is a boolean
SELECT id, predict_proba('loyal', *, class := true) AS lt, predict('loyal', *) AS l FROM customers
-- expect:
SELECT id, lt, l FROM scored

-- name: the class before the features
SELECT id, predict_proba('churn', class := 'yes', *) AS q FROM customers
-- expect:
SELECT id, q FROM scored

-- name: raw margins of an ensemble of three classes
SELECT id, predict_score('risk', *)[1] AS first, len(predict_score('risk', *)) AS n FROM customers
-- expect:
SELECT id, rm[1] AS first, 3::BIGINT AS n FROM scored
-- spark:
SELECT id, predict_score('risk', *)[0] AS first, size(predict_score('risk', *)) AS n FROM customers

-- name: a transformer gives a list
SELECT id, transform('scale', *) AS s FROM customers
-- expect:
SELECT id, s FROM scored

-- name: an element of what a transformer gives
SELECT id, transform('scale', *)[2] - transform('scale', *)[1] AS d FROM customers
-- expect:
SELECT id, s[2] - s[1] AS d FROM scored
-- spark:
SELECT id, transform('scale', *)[1] - transform('scale', *)[0] AS d FROM customers

-- name: unnest what a transformer gives
SELECT id, unnest(transform('scale', *)) AS x FROM customers WHERE id < 9
-- expect:
SELECT id, unnest(s) AS x FROM scored WHERE id < 9
-- spark:
SELECT id, explode(transform('scale', *)) AS x FROM customers WHERE id < 9

-- name: versions of a model
SELECT id, predict('value/1', *) AS v1, predict('value/2', *) AS v2, predict('value', *) AS v
FROM customers
-- expect:
SELECT id, v1, v AS v2, v FROM scored

-- name: first and last version
SELECT id, predict('value@last', *) - predict('value@first', *) AS gain FROM customers
-- expect:
SELECT id, v - v1 AS gain FROM scored

-- name: a model named in another case
SELECT id, predict('ChUrN', *) AS p FROM customers
-- expect:
SELECT id, p FROM scored

-- name: a call as an argument of a call
SELECT id, predict('value', charges := predict('value/1', *), visits := visits) AS v FROM customers
-- rows:
SELECT id, v1 AS charges, visits FROM scored
-- expect:
SELECT id, v FROM given

-- name: a call overrides a column of a star
SELECT id, predict('risk', *, charges := predict('value', *)) AS r FROM customers
-- rows:
SELECT id, tenure, v AS charges, visits FROM scored
-- expect:
SELECT id, r FROM given

-- name: a label as a feature of another model
SELECT id, predict('value', charges := charges, visits := CASE predict('churn', *) WHEN 'yes' THEN 1 ELSE 20 END) AS v
FROM customers
-- rows:
SELECT id, charges, CASE p WHEN 'yes' THEN 1 ELSE 20 END AS visits FROM scored
-- expect:
SELECT id, v FROM given

-- name: decimals and small integers feed numbers
SELECT id, predict('risk', tenure::DECIMAL(9, 2), charges::DECIMAL(12, 2), visits::UTINYINT) AS r FROM customers
-- expect:
SELECT id, r FROM scored
-- spark:
SELECT id, predict('risk', tenure::DECIMAL(9, 2), charges::DECIMAL(12, 2), visits::SMALLINT) AS r FROM customers

-- name: booleans and hugeints feed numbers
SELECT id, predict('value', charges := visits::HUGEINT, visits := visits > 3) AS v FROM customers
-- rows:
SELECT id, visits::DOUBLE AS charges, (visits > 3)::INTEGER AS visits FROM customers
-- expect:
SELECT id, v FROM given
-- spark:
SELECT id, predict('value', charges := visits::DECIMAL(38, 0), visits := visits > 3) AS v FROM customers

-- name: enums feed categories
CREATE TYPE plans AS ENUM ('pro', 'max', 'basic');
SELECT id, predict('churn', * REPLACE (plan::plans AS plan)) AS p FROM customers
-- expect:
CREATE TYPE plans AS ENUM ('pro', 'max', 'basic');
SELECT id, p FROM scored
-- spark gap: Spark has no ENUM

-- name: an unseen category that the encoder ignores
SELECT id, predict_proba('churn', *, region := 'west', class := 'yes') AS q FROM customers
-- rows:
SELECT * REPLACE ('west' AS region) FROM customers
-- expect:
SELECT id, q FROM given

-- name: the text of an item names its column
SELECT predict_proba('churn', *, class := 'yes') > 0.5, id FROM customers
-- expect:
SELECT q > 0.5 AS "(predict_proba('churn', *, ""class"" := 'yes') > 0.5)", id FROM scored

-- name: the text over several lines names its column
SELECT id, predict_proba( 'churn' ,
    tenure, charges,
    plan, region )  FROM customers
-- expect:
SELECT id, pm AS "predict_proba('churn', tenure, charges, plan, region)" FROM scored
