-- name: a pivot of scored rows
PIVOT (SELECT plan, predict('churn', *) AS p FROM customers) ON p USING count(*) GROUP BY plan
-- expect:
PIVOT (SELECT plan, p FROM scored) ON p USING count(*) GROUP BY plan
-- spark:
SELECT plan, ifnull(no, 0) AS no, ifnull(yes, 0) AS yes FROM (SELECT plan, predict('churn', *) AS p FROM customers) PIVOT (count(*) FOR p IN ('no', 'yes'))

-- name: a pivot on a number with two aggregates
PIVOT (SELECT plan, predict('risk', *) AS r, predict('value', *) AS v FROM customers) ON r IN (0, 1, 2) USING avg(v) AS a, max(v) AS m GROUP BY plan ORDER BY plan
-- expect:
PIVOT (SELECT plan, r, v FROM scored) ON r IN (0, 1, 2) USING avg(v) AS a, max(v) AS m GROUP BY plan ORDER BY plan
-- spark:
SELECT * FROM (SELECT plan, predict('risk', *) AS r, predict('value', *) AS v FROM customers) PIVOT (avg(v) AS a, max(v) AS m FOR r IN (0, 1, 2)) ORDER BY plan

-- name: a pivot that aggregates calls
PIVOT customers ON plan USING avg(predict('value', charges, visits)) GROUP BY region
-- expect:
PIVOT (SELECT plan, region, v FROM scored) ON plan USING avg(v) GROUP BY region
-- spark:
SELECT * FROM (SELECT region, plan, charges, visits FROM customers) PIVOT (avg(predict('value', charges, visits)) FOR plan IN ('basic', 'max', 'pro'))

-- name: a standard pivot in a from clause
SELECT * FROM (SELECT region, plan, predict('churn', *) AS p FROM customers) PIVOT (count(*) FOR p IN ('yes', 'no') GROUP BY region)
-- expect:
SELECT * FROM (SELECT region, plan, p FROM scored) PIVOT (count(*) FOR p IN ('yes', 'no') GROUP BY region)
-- spark:
SELECT region, ifnull(yes, 0) AS yes, ifnull(no, 0) AS no FROM (SELECT region, plan, predict('churn', *) AS p FROM customers) PIVOT (count(plan) FOR p IN ('yes', 'no'))

-- name: the star of a pivoted table
SELECT k, predict('value', *) AS v FROM (PIVOT (SELECT id AS k, 'charges' AS what, charges AS x FROM customers UNION ALL SELECT id, 'visits', visits FROM customers) ON what IN ('charges', 'visits') USING first(x))
-- expect:
SELECT id AS k, v FROM scored
-- spark:
SELECT k, predict('value', *) AS v FROM (SELECT id AS k, 'charges' AS what, charges AS x FROM customers UNION ALL SELECT id, 'visits', visits FROM customers) PIVOT (first(x) FOR what IN ('charges', 'visits'))

-- name: the features are the columns that a pivot makes
WITH wide AS (PIVOT (SELECT id AS k, 'tenure' AS what, tenure AS x FROM customers UNION ALL SELECT id, 'visits', visits FROM customers) ON what IN ('tenure', 'visits') USING max(x))
SELECT k, predict('loyal', wide.*) AS l FROM wide WHERE k < 30
-- expect:
SELECT id AS k, l FROM scored WHERE id < 30
-- spark:
WITH wide AS (SELECT * FROM (SELECT id AS k, 'tenure' AS what, tenure AS x FROM customers UNION ALL SELECT id, 'visits', visits FROM customers) PIVOT (max(x) FOR what IN ('tenure', 'visits')))
SELECT k, predict('loyal', wide.*) AS l FROM wide WHERE k < 30

-- name: an unpivot of two scores
UNPIVOT (SELECT id, predict('value', *) AS v, predict_score('churn', *) AS m FROM customers) ON v, m INTO NAME score VALUE x
-- expect:
UNPIVOT (SELECT id, v, m FROM scored) ON v, m INTO NAME score VALUE x
-- spark:
SELECT * FROM (SELECT id, predict('value', *) AS v, predict_score('churn', *) AS m FROM customers) UNPIVOT (x FOR score IN (v, m))

-- name: an unpivot in a from clause
SELECT id, score, x FROM (SELECT id, predict_proba('risk', *, class := 0) AS zero, predict_proba('risk', *, class := 2) AS two FROM customers) UNPIVOT (x FOR score IN (zero, two))
-- expect:
SELECT id, score, x FROM (SELECT id, r0 AS zero, r2 AS two FROM scored) UNPIVOT (x FOR score IN (zero, two))

-- name: scoring unpivoted rows
SELECT id, what, predict('value', charges := x, visits := 3) AS v FROM (UNPIVOT (SELECT id, charges, visits::DOUBLE AS visits FROM customers) ON charges, visits INTO NAME what VALUE x)
-- rows:
SELECT id, what, x AS charges, 3 AS visits FROM (UNPIVOT (SELECT id, charges, visits::DOUBLE AS visits FROM customers) ON charges, visits INTO NAME what VALUE x)
-- expect:
SELECT id, what, v FROM given
-- spark:
SELECT id, what, predict('value', charges := x, visits := 3) AS v FROM (SELECT id, charges, visits::DOUBLE AS visits FROM customers) UNPIVOT (x FOR what IN (charges, visits))

-- name: an unpivot of columns that keeps nulls
SELECT what, count(*) AS n, sum(predict('loyal', tenure := x, visits := 5)::INT) AS s
FROM customers UNPIVOT INCLUDE NULLS (x FOR what IN (tenure, charges)) GROUP BY what
-- rows:
SELECT what, x AS tenure, 5 AS visits FROM (SELECT tenure, charges FROM customers) UNPIVOT INCLUDE NULLS (x FOR what IN (tenure, charges))
-- expect:
SELECT what, count(*) AS n, sum(l::INT) AS s FROM given GROUP BY what

-- name: a pivot as a definition, filtered
WITH w AS (PIVOT (SELECT plan, predict('churn', *) AS p FROM customers) ON p IN ('no', 'yes') USING count(*) GROUP BY plan) SELECT plan FROM w WHERE no > yes
-- expect:
WITH w AS (PIVOT (SELECT plan, p FROM scored) ON p IN ('no', 'yes') USING count(*) GROUP BY plan) SELECT plan FROM w WHERE no > yes
-- spark:
WITH w AS (SELECT * FROM (SELECT plan, predict('churn', *) AS p FROM customers) PIVOT (count(*) FOR p IN ('no', 'yes'))) SELECT plan FROM w WHERE no > ifnull(yes, 0)

-- name: a pivot whose column is a call
PIVOT customers ON predict('churn', *) USING count(*) GROUP BY plan
-- expect:
PIVOT scored ON p USING count(*) GROUP BY plan
-- spark gap: Spark pivots on columns, not on expressions

-- name: summarize scores
SELECT column_name, column_type, min, max, count FROM (SUMMARIZE SELECT predict('risk', *) AS r, predict('churn', *) AS p FROM customers)
-- expect:
SELECT column_name, column_type, min, max, count FROM (SUMMARIZE SELECT r, p FROM scored)
-- spark gap: Spark has no SUMMARIZE

-- name: describe scores
DESCRIBE SELECT predict('churn', *) AS p, predict_proba('churn', *) AS pm, predict_score('risk', *) AS rm, transform('scale', *) AS s, predict('loyal', *) AS l FROM customers
-- expect:
DESCRIBE SELECT p, pm, rm, s, l FROM scored
-- spark gap: Spark's DESCRIBE gives other columns
