-- name: NaN is a missing value
SELECT id, predict('risk', * REPLACE (coalesce(tenure, 'nan'::DOUBLE) AS tenure)) AS r FROM customers
-- expect:
SELECT id, r FROM scored
-- spark:
SELECT id, predict('risk', * EXCEPT (tenure), tenure := coalesce(tenure, 'nan'::DOUBLE)) AS r FROM customers

-- name: every kind of whole number
SELECT id, predict('value', charges := 40::TINYINT, visits := visits::UBIGINT) AS a, predict('value', charges := 40::SMALLINT, visits := visits::USMALLINT) AS b,
    predict('value', charges := 40::UINTEGER, visits := visits::BIGINT) AS c, predict('value', charges := 40::UHUGEINT, visits := visits::TINYINT) AS d FROM customers
-- rows:
SELECT id, 40 AS charges, visits FROM customers
-- expect:
SELECT id, v AS a, v AS b, v AS c, v AS d FROM given
-- spark:
SELECT id, predict('value', charges := 40::TINYINT, visits := visits::BIGINT) AS a, predict('value', charges := 40::SMALLINT, visits := visits::INT) AS b,
    predict('value', charges := 40::BIGINT, visits := visits::SMALLINT) AS c, predict('value', charges := 40::DECIMAL(38, 0), visits := visits::TINYINT) AS d FROM customers

-- name: floats of single precision
SELECT id, predict('risk', tenure::FLOAT, charges::FLOAT, visits::FLOAT) AS r, predict('value', charges::FLOAT, visits) AS v FROM customers
-- rows:
SELECT id, tenure, charges::FLOAT::DOUBLE AS charges, visits FROM customers
-- expect:
SELECT id, r, v FROM given

-- name: wide decimals
SELECT id, predict('value', charges::DECIMAL(38, 10), (visits / 3)::DECIMAL(18, 6)) AS v FROM customers
-- rows:
SELECT id, charges, (visits / 3)::DECIMAL(18, 6)::DOUBLE AS visits FROM customers
-- expect:
SELECT id, v FROM given

-- name: booleans in a tree
SELECT predict('loyal', tenure := b, visits := NOT b) AS l, b FROM (VALUES (true), (false)) t(b)
-- rows:
SELECT b, b::INTEGER AS tenure, (NOT b)::INTEGER AS visits FROM (VALUES (true), (false)) t(b)
-- expect:
SELECT l, b FROM given

-- name: very large and very small numbers
SELECT n, predict('risk', tenure := x, charges := -x, visits := x) AS r FROM (VALUES (1, 1e30), (2, -1e30), (3, 1e-30), (4, 0.0), (5, -0.0), (6, 3.4e38)) t(n, x)
-- rows:
SELECT n, x AS tenure, -x AS charges, x AS visits FROM (VALUES (1, 1e30), (2, -1e30), (3, 1e-30), (4, 0.0), (5, -0.0), (6, 3.4e38)) t(n, x)
-- expect:
SELECT n, r FROM given

-- name: empty strings, blanks and long strings
SELECT n, predict_proba('churn', tenure := 5, charges := 50, plan := w, region := w, class := 'yes') AS q FROM (VALUES (1, ''), (2, ' '), (3, 'PRO'), (4, 'pro'), (5, repeat('x', 10000))) t(n, w)
-- rows:
SELECT n, 5.0 AS tenure, 50.0 AS charges, w AS plan, w AS region FROM (VALUES (1, ''), (2, ' '), (3, 'PRO'), (4, 'pro'), (5, repeat('x', 10000))) t(n, w)
-- expect:
SELECT n, q FROM given

-- name: a date cast to text and a number of days
SELECT id, predict('value', charges := date_diff('day', DATE '2024-01-01', joined), visits := month(joined)) AS v FROM customers
-- rows:
SELECT id, date_diff('day', DATE '2024-01-01', joined) AS charges, month(joined) AS visits FROM customers
-- expect:
SELECT id, v FROM given
-- spark:
SELECT id, predict('value', charges := date_diff(DAY, DATE '2024-01-01', joined), visits := month(joined)) AS v FROM customers

-- name: an untyped NULL in every form
SELECT predict('risk', NULL, 50, NULL) AS a, predict('risk', {'tenure': NULL, 'charges': 50, 'visits': NULL}) AS b, predict('risk', tenure := (NULL), charges := 50, visits := CAST(NULL AS TINYINT)) AS c
-- rows:
SELECT NULL::DOUBLE AS tenure, 50.0 AS charges, NULL::DOUBLE AS visits
-- expect:
SELECT r AS a, r AS b, r AS c FROM given

-- name: a column of nothing but NULL
SELECT id, predict_proba('risk', *) AS rp FROM (SELECT id, NULL AS tenure, charges, visits FROM customers)
-- rows:
SELECT id, NULL::DOUBLE AS tenure, charges, visits FROM customers
-- expect:
SELECT id, MAP([0::BIGINT, 1, 2], [r0, r1, r2]) AS rp FROM given

-- name: one row, no row and many rows
SELECT (SELECT count(predict('churn', *)) FROM customers WHERE id = 3) AS one, (SELECT count(predict('churn', *)) FROM customers WHERE id = -3) AS none, (SELECT count(predict('value', *)) FROM customers a, range(100)) AS many
-- expect:
SELECT 1::BIGINT AS one, 0::BIGINT AS none, 12000::BIGINT AS many
