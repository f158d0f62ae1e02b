-- name: qualify by a row number within a group
SELECT id FROM customers QUALIFY row_number() OVER (PARTITION BY plan ORDER BY predict_proba('churn', *, class := 'yes'), id) = 1
-- expect:
SELECT id FROM scored QUALIFY row_number() OVER (PARTITION BY plan ORDER BY q, id) = 1

-- name: qualify beside a filter and the label
SELECT id, predict('churn', *) AS p FROM customers WHERE predict('churn', *) = 'yes' QUALIFY rank() OVER (ORDER BY predict_score('churn', *) DESC, id) <= 5
-- expect:
SELECT id, p FROM scored WHERE p = 'yes' QUALIFY rank() OVER (ORDER BY m DESC, id) <= 5

-- name: a named window
SELECT id, rank() OVER w AS k FROM customers WINDOW w AS (ORDER BY predict_proba('churn', *, class := 'yes'))
-- expect:
SELECT id, rank() OVER w AS k FROM scored WINDOW w AS (ORDER BY q)

-- name: two named windows and qualify
SELECT id, lag(id) OVER a AS before, count(*) OVER b AS n FROM customers
WINDOW a AS (PARTITION BY plan ORDER BY predict('value', *), id), b AS (PARTITION BY predict('churn', *))
QUALIFY row_number() OVER a < 4
-- expect:
SELECT id, lag(id) OVER a AS before, count(*) OVER b AS n FROM scored
WINDOW a AS (PARTITION BY plan ORDER BY v, id), b AS (PARTITION BY p) QUALIFY row_number() OVER a < 4

-- name: partition by a label
SELECT id, sum(charges) OVER (PARTITION BY predict('risk', *) ORDER BY id) AS s FROM customers
-- expect:
SELECT id, sum(charges) OVER (PARTITION BY r ORDER BY id) AS s FROM scored

-- name: an aggregate of a score over a frame of rows
SELECT id, avg(predict('value', *)) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a FROM customers
-- expect:
SELECT id, avg(v) OVER (ORDER BY id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS a FROM scored

-- name: a range frame by days
SELECT id, max(predict_score('churn', *)) OVER (ORDER BY joined RANGE BETWEEN INTERVAL 10 DAYS PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) AS m FROM customers
-- expect:
SELECT id, max(m) OVER (ORDER BY joined RANGE BETWEEN INTERVAL 10 DAYS PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW) AS m FROM scored
-- spark:
SELECT id, max(predict_score('churn', *)) OVER (ORDER BY joined RANGE BETWEEN INTERVAL 10 DAYS PRECEDING AND INTERVAL 1 DAY PRECEDING) AS m FROM customers

-- name: lag and lead of labels
SELECT id, lag(predict('churn', *), 1, 'none') OVER (ORDER BY id) AS a, lead(predict('risk', *)) OVER (ORDER BY id DESC) AS b FROM customers
-- expect:
SELECT id, lag(p, 1, 'none') OVER (ORDER BY id) AS a, lead(r) OVER (ORDER BY id DESC) AS b FROM scored

-- name: first and last value, ignoring nulls
SELECT id, first_value(CASE WHEN predict('loyal', *) THEN id END IGNORE NULLS) OVER (PARTITION BY plan ORDER BY id) AS f,
    last_value(predict('churn', *)) OVER (PARTITION BY region ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM customers
-- expect:
SELECT id, first_value(CASE WHEN l THEN id END IGNORE NULLS) OVER (PARTITION BY plan ORDER BY id) AS f,
    last_value(p) OVER (PARTITION BY region ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM scored
-- spark:
SELECT id, first_value(CASE WHEN predict('loyal', *) THEN id END) IGNORE NULLS OVER (PARTITION BY plan ORDER BY id) AS f,
    last_value(predict('churn', *)) OVER (PARTITION BY region ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS l FROM customers

-- name: ntile and percent_rank
SELECT id, ntile(4) OVER (ORDER BY predict('value', *), id) AS n, percent_rank() OVER (ORDER BY predict('value', *)) AS x FROM customers
-- expect:
SELECT id, ntile(4) OVER (ORDER BY v, id) AS n, percent_rank() OVER (ORDER BY v) AS x FROM scored

-- name: a filtered window aggregate
SELECT id, count(*) FILTER (WHERE predict('churn', *) = 'yes') OVER (PARTITION BY plan) AS n FROM customers
-- expect:
SELECT id, count(*) FILTER (WHERE p = 'yes') OVER (PARTITION BY plan) AS n FROM scored

-- name: a window function as a feature
SELECT id, predict('value', charges := avg(charges) OVER (PARTITION BY plan ORDER BY id), visits := visits) AS v FROM customers
-- rows:
SELECT id, avg(charges) OVER (PARTITION BY plan ORDER BY id) AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given

-- name: a named window as a feature
SELECT id, predict('loyal', tenure := max(tenure) OVER w, visits := lag(visits, 1, 0) OVER w) AS l FROM customers WINDOW w AS (PARTITION BY region ORDER BY id)
-- rows:
SELECT id, max(tenure) OVER w AS tenure, lag(visits, 1, 0) OVER w AS visits FROM customers WINDOW w AS (PARTITION BY region ORDER BY id)
-- expect:
SELECT id, l FROM given

-- name: a share of a total
SELECT id, predict_proba('churn', *, class := 'yes') / sum(predict_proba('churn', *, class := 'yes')) OVER (PARTITION BY plan) AS share FROM customers
-- expect:
SELECT id, q / sum(q) OVER (PARTITION BY plan) AS share FROM scored

-- name: a window over groups
SELECT plan, rank() OVER (ORDER BY avg(predict('value', *))) AS k FROM customers GROUP BY plan
-- expect:
SELECT plan, rank() OVER (ORDER BY avg(v)) AS k FROM scored GROUP BY plan

-- name: the rank of a label's count
SELECT predict('risk', *) AS r, dense_rank() OVER (ORDER BY count(*) DESC) AS k FROM customers GROUP BY r
-- expect:
SELECT r, dense_rank() OVER (ORDER BY count(*) DESC) AS k FROM scored GROUP BY r

-- name: qualify with an alias
SELECT id, row_number() OVER (PARTITION BY predict('churn', *) ORDER BY id DESC) AS k FROM customers QUALIFY k = 1
-- expect:
SELECT id, row_number() OVER (PARTITION BY p ORDER BY id DESC) AS k FROM scored QUALIFY k = 1

-- name: qualify with the label alone
SELECT id, count(*) OVER () AS n FROM customers QUALIFY predict('churn', *) = 'yes' AND n > 3
-- expect:
SELECT id, count(*) OVER () AS n FROM scored QUALIFY p = 'yes' AND n > 3

-- name: an ordered list within a window
SELECT id, list(predict('risk', *) ORDER BY id DESC) OVER (ORDER BY id ROWS 2 PRECEDING) AS rs FROM customers
-- expect:
SELECT id, list(r ORDER BY id DESC) OVER (ORDER BY id ROWS 2 PRECEDING) AS rs FROM scored
-- spark:
SELECT id, reverse(collect_list(predict('risk', *)) OVER (ORDER BY id ROWS 2 PRECEDING)) AS rs FROM customers

-- name: a fill of missing values by a window
SELECT id, predict('risk', * REPLACE (coalesce(tenure, avg(tenure) OVER (PARTITION BY plan)) AS tenure)) AS r FROM customers
-- rows:
SELECT * REPLACE (coalesce(tenure, avg(tenure) OVER (PARTITION BY plan)) AS tenure) FROM customers
-- expect:
SELECT id, r FROM given
-- spark:
SELECT id, predict('risk', * EXCEPT (tenure), tenure := coalesce(tenure, avg(tenure) OVER (PARTITION BY plan))) AS r FROM customers
