-- name: where on a label
SELECT id FROM customers WHERE predict('churn', *) = 'yes'
-- expect:
SELECT id FROM scored WHERE p = 'yes'

-- name: where on a probability and a column
SELECT name, id FROM customers WHERE predict_proba('churn', *, class := 'yes') BETWEEN 0.2 AND 0.7 AND plan <> 'pro'
-- expect:
SELECT name, id FROM scored WHERE q BETWEEN 0.2 AND 0.7 AND plan <> 'pro'

-- name: where with or and not
SELECT id FROM customers
WHERE NOT predict('loyal', *) OR predict('risk', *) = 2 OR id IN (1, 2, 3)
-- expect:
SELECT id FROM scored WHERE NOT l OR r = 2 OR id IN (1, 2, 3)

-- name: in, is distinct from and like on labels
SELECT id FROM customers
WHERE predict('churn', *) IN ('yes', 'maybe') AND region IS DISTINCT FROM NULL AND predict('churn', *) LIKE 'y%'
-- expect:
SELECT id FROM scored WHERE p = 'yes' AND region IS NOT NULL

-- name: group by an alias
SELECT predict('churn', *) AS g, count(*) AS n FROM customers GROUP BY g
-- expect:
SELECT p AS g, count(*) AS n FROM scored GROUP BY p

-- name: group by the call itself
SELECT predict('churn', *) AS g, count(*) AS n FROM customers GROUP BY predict('churn', *)
-- expect:
SELECT p AS g, count(*) AS n FROM scored GROUP BY p

-- name: group by all
SELECT predict('risk', *) AS g, plan, sum(charges) AS s FROM customers GROUP BY ALL
-- expect:
SELECT r AS g, plan, sum(charges) AS s FROM scored GROUP BY ALL

-- name: group by the number of a column
SELECT plan, predict('risk', *), max(id) AS m FROM customers GROUP BY 1, 2 ORDER BY 1, 2 DESC
-- expect:
SELECT plan, r AS "predict('risk', *)", max(id) AS m FROM scored GROUP BY 1, 2 ORDER BY 1, 2 DESC

-- name: group by an expression of a call
SELECT floor(predict_proba('churn', *, class := 'yes') * 5) AS bucket, count(*) AS n
FROM customers GROUP BY floor(predict_proba('churn', *, class := 'yes') * 5) ORDER BY bucket
-- expect:
SELECT floor(q * 5) AS bucket, count(*) AS n FROM scored GROUP BY 1 ORDER BY bucket
-- spark:
SELECT floor(predict_proba('churn', *, class := 'yes') * 5)::DOUBLE AS bucket, count(*) AS n
FROM customers GROUP BY floor(predict_proba('churn', *, class := 'yes') * 5) ORDER BY bucket

-- name: having on an average
SELECT plan FROM customers GROUP BY plan HAVING avg(predict_proba('churn', *, class := 'yes')) > 0.4
-- expect:
SELECT plan FROM scored GROUP BY plan HAVING avg(q) > 0.4

-- name: having on a count of labels
SELECT region, count(*) AS n FROM customers GROUP BY region
HAVING count(*) FILTER (predict('churn', *) = 'yes') >= 5
-- expect:
SELECT region, count(*) AS n FROM scored GROUP BY region HAVING count(*) FILTER (p = 'yes') >= 5
-- spark:
SELECT region, count(*) AS n FROM customers GROUP BY region
HAVING count(*) FILTER (WHERE predict('churn', *) = 'yes') >= 5

-- name: order by a probability, descending
SELECT id FROM customers ORDER BY predict_proba('churn', *, class := 'yes') DESC, id LIMIT 20
-- expect:
SELECT id FROM scored ORDER BY q DESC, id LIMIT 20

-- name: order by a label, then a score
SELECT id FROM customers ORDER BY predict('churn', *), predict_score('churn', *) NULLS FIRST, id
-- expect:
SELECT id FROM scored ORDER BY p, m NULLS FIRST, id

-- name: order by an alias of a call
SELECT id, predict('value', *) AS worth FROM customers ORDER BY worth DESC, id OFFSET 100
-- expect:
SELECT id, v AS worth FROM scored ORDER BY worth DESC, id OFFSET 100

-- name: order by all
SELECT predict('churn', *) AS p, plan, id FROM customers ORDER BY ALL DESC
-- expect:
SELECT p, plan, id FROM scored ORDER BY ALL DESC

-- name: limit is a subquery with calls
SELECT id FROM customers ORDER BY id
LIMIT (SELECT count(*) // 2 FROM customers WHERE predict('churn', *) = 'yes')
-- expect:
SELECT id FROM scored ORDER BY id LIMIT (SELECT count(*) // 2 FROM scored WHERE p = 'yes')
-- spark setup:
DECLARE OR REPLACE VARIABLE half INT
-- spark:
SET VAR half = (SELECT count(*) DIV 2 FROM customers WHERE predict('churn', *) = 'yes');
SELECT id FROM customers ORDER BY id LIMIT half

-- name: limit and offset are expressions
SELECT id, predict('risk', *) AS r FROM customers ORDER BY id LIMIT 5 + 5 OFFSET 2 * 3
-- expect:
SELECT id, r FROM scored ORDER BY id LIMIT 10 OFFSET 6

-- name: a limit in percent
SELECT id, predict('churn', *) AS p FROM customers ORDER BY id LIMIT 25%
-- expect:
SELECT id, p FROM scored ORDER BY id LIMIT 30
-- spark:
SELECT id, predict('churn', *) AS p FROM customers QUALIFY ntile(4) OVER (ORDER BY id) = 1 ORDER BY id

-- name: aggregates of a score
SELECT sum(predict_proba('churn', *, class := 'yes')) AS s, avg(predict('value', *)) AS a,
    min(predict_score('churn', *)) AS mi, max(predict('risk', *)) AS ma FROM customers
-- expect:
SELECT sum(q) AS s, avg(v) AS a, min(m) AS mi, max(r) AS ma FROM scored

-- name: aggregates with a filter
SELECT avg(predict_proba('churn', *, class := 'yes')) FILTER (WHERE id > 50) AS a,
    count(*) FILTER (WHERE predict('churn', *) = 'no') AS n FROM customers
-- expect:
SELECT avg(q) FILTER (WHERE id > 50) AS a, count(*) FILTER (WHERE p = 'no') AS n FROM scored

-- name: an aggregate with an order of its own
SELECT plan, list(id ORDER BY predict_score('churn', *) DESC, id) AS ids FROM customers GROUP BY plan
-- expect:
SELECT plan, list(id ORDER BY m DESC, id) AS ids FROM scored GROUP BY plan
-- spark:
SELECT plan, transform(array_sort(array_agg(struct(-predict_score('churn', *), id))), s -> s.id) AS ids
FROM customers GROUP BY plan

-- name: count distinct labels
SELECT count(DISTINCT predict('risk', *)) AS n, string_agg(DISTINCT predict('churn', *), '|' ORDER BY 1) AS t
FROM customers
-- expect:
SELECT count(DISTINCT r) AS n, 'no|yes' AS t FROM scored
-- spark:
SELECT count(DISTINCT predict('risk', *)) AS n,
    array_join(array_sort(array_agg(DISTINCT predict('churn', *))), '|') AS t FROM customers

-- name: string_agg with an order by a label
SELECT string_agg(DISTINCT predict('churn', *), '|' ORDER BY predict('churn', *) DESC) AS t FROM customers
-- expect:
SELECT string_agg(DISTINCT p, '|' ORDER BY p DESC) AS t FROM scored
-- spark:
SELECT string_agg(DISTINCT predict('churn', *), '|') WITHIN GROUP (ORDER BY predict('churn', *) DESC) AS t
FROM customers

-- name: arg_max by a score
SELECT plan, arg_max(id, predict_score('churn', *)) AS top, arg_min(name, predict('value', *)) AS low
FROM customers GROUP BY plan
-- expect:
SELECT plan, arg_max(id, m) AS top, arg_min(name, v) AS low FROM scored GROUP BY plan
-- spark:
SELECT plan, max_by(id, predict_score('churn', *)) AS top, min_by(name, predict('value', *)) AS low
FROM customers GROUP BY plan

-- name: histograms and modes of labels
SELECT histogram(predict('churn', *)) AS h, mode(predict('churn', *)) AS mo FROM customers
-- expect:
SELECT histogram(p) AS h, mode(p) AS mo FROM scored
-- spark:
SELECT map('no', count_if(predict('churn', *) = 'no'), 'yes', count_if(predict('churn', *) = 'yes')) AS h,
    mode(predict('churn', *)) AS mo FROM customers

-- name: quantiles within group
SELECT quantile_cont(predict('value', *), [0.25, 0.5]) AS a,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY predict('value', *)) AS b FROM customers
-- expect:
SELECT quantile_cont(v, [0.25, 0.5]) AS a, quantile_cont(v, 0.9) AS b FROM scored
-- spark:
SELECT percentile(predict('value', *), array(0.25, 0.5)) AS a,
    percentile_cont(0.9) WITHIN GROUP (ORDER BY predict('value', *)) AS b FROM customers

-- name: regression and correlation of two models
SELECT corr(predict('value', *), predict_score('churn', *)) AS c FROM customers
-- expect:
SELECT corr(v, m) AS c FROM scored

-- name: distinct labels
SELECT DISTINCT predict('churn', *) AS p, plan FROM customers
-- expect:
SELECT DISTINCT p, plan FROM scored

-- name: distinct on a label
SELECT DISTINCT ON (predict('risk', *)) id, predict('risk', *) AS r FROM customers ORDER BY predict('risk', *), id
-- expect:
SELECT DISTINCT ON (r) id, r FROM scored ORDER BY r, id
-- spark:
SELECT id, predict('risk', *) AS r FROM customers
QUALIFY row_number() OVER (PARTITION BY predict('risk', *) ORDER BY id) = 1 ORDER BY predict('risk', *), id

-- name: distinct on a column, the best by a score
SELECT DISTINCT ON (plan) plan, id FROM customers ORDER BY plan, predict_score('churn', *) DESC, id
-- expect:
SELECT DISTINCT ON (plan) plan, id FROM scored ORDER BY plan, m DESC, id
-- spark:
SELECT plan, id FROM customers
QUALIFY row_number() OVER (PARTITION BY plan ORDER BY predict_score('churn', *) DESC, id) = 1 ORDER BY plan

-- name: grouping sets
SELECT plan, predict('churn', *) AS p, count(*) AS n, grouping(plan) AS g FROM customers
GROUP BY GROUPING SETS ((plan), (predict('churn', *)), ())
-- expect:
SELECT plan, p, count(*) AS n, grouping(plan) AS g FROM scored GROUP BY GROUPING SETS ((plan), (p), ())

-- name: rollup of plans over a score
SELECT plan, region, max(predict('value', *)) AS m FROM customers GROUP BY ROLLUP (plan, region)
-- expect:
SELECT plan, region, max(v) AS m FROM scored GROUP BY ROLLUP (plan, region)

-- name: cube with a label by its alias
SELECT plan, predict('risk', *) AS r, count(*) AS n FROM customers GROUP BY CUBE (plan, r)
-- expect:
SELECT plan, r, count(*) AS n FROM scored GROUP BY CUBE (plan, r)

-- name: case with calls in every arm
SELECT id, CASE WHEN predict('loyal', *) THEN predict('value', *) WHEN plan = 'pro' THEN -1
    ELSE predict_proba('churn', *, class := 'yes') END AS x FROM customers
-- expect:
SELECT id, CASE WHEN l THEN v WHEN plan = 'pro' THEN -1 ELSE q END AS x FROM scored

-- name: a simple case over a label
SELECT id, CASE predict('churn', *) WHEN 'yes' THEN 1 WHEN 'no' THEN 0 END AS x FROM customers
-- expect:
SELECT id, (p = 'yes')::INTEGER AS x FROM scored

-- name: casts, arithmetic and functions around a call
SELECT id, (100 * predict_proba('churn', *, class := 'yes'))::DECIMAL(5, 1) AS x,
    -predict('value', *) ** 2 AS y, CAST(predict('risk', *) AS VARCHAR) || '!' AS z FROM customers
-- expect:
SELECT id, (100 * q)::DECIMAL(5, 1) AS x, -v ** 2 AS y, r || '!' AS z FROM scored
-- spark:
SELECT id, (100 * predict_proba('churn', *, class := 'yes'))::DECIMAL(5, 1) AS x,
    pow(-predict('value', *), 2) AS y, CAST(predict('risk', *) AS STRING) || '!' AS z FROM customers

-- name: a call with a cast behind it
SELECT predict('risk', *)::VARCHAR AS r, predict('loyal', *)::INT AS l, id FROM customers
-- expect:
SELECT r::VARCHAR AS r, l::INT AS l, id FROM scored
-- spark:
SELECT predict('risk', *)::STRING AS r, predict('loyal', *)::INT AS l, id FROM customers

-- name: a method on a call
SELECT id, predict('churn', *).upper() AS p FROM customers
-- expect:
SELECT id, upper(p) AS p FROM scored
-- spark:
SELECT id, upper(predict('churn', *)) AS p FROM customers

-- name: coalesce, nullif, greatest
SELECT id, coalesce(nullif(predict('churn', *), 'no'), plan) AS a, greatest(predict('value', *), charges) AS b
FROM customers
-- expect:
SELECT id, coalesce(nullif(p, 'no'), plan) AS a, greatest(v, charges) AS b FROM scored

-- name: a label compared with a column
SELECT id FROM customers WHERE predict('value', *) > charges AND predict('risk', *) < visits
-- expect:
SELECT id FROM scored WHERE v > charges AND r < visits

-- name: an alias before its expression
SELECT id, p: predict('churn', *), twice: 2 * predict('value', *) FROM customers
-- expect:
SELECT id, p, 2 * v AS twice FROM scored
-- spark:
SELECT id, predict('churn', *) AS p, 2 * predict('value', *) AS twice FROM customers

-- name: an alias without as
SELECT id k, predict('churn', *) lab, predict('value', *) "The Worth" FROM customers
-- expect:
SELECT id AS k, p AS lab, v AS "The Worth" FROM scored
-- spark:
SELECT id k, predict('churn', *) lab, predict('value', *) `The Worth` FROM customers

-- name: a select item that uses an earlier alias
SELECT id, predict('value', *) AS v, v * 2 AS double, double > 100 AS big FROM customers
-- expect:
SELECT id, v, v * 2 AS double, v * 2 > 100 AS big FROM scored

-- name: where uses an alias of a call
SELECT id, predict_proba('churn', *, class := 'yes') AS chance FROM customers WHERE chance > 0.6
-- expect:
SELECT id, q AS chance FROM scored WHERE q > 0.6
-- spark:
FROM customers |> EXTEND predict_proba('churn', *, class := 'yes') AS chance |> WHERE chance > 0.6
|> SELECT id, chance

-- name: a table sample of all rows
SELECT id, predict('churn', *) AS p FROM customers TABLESAMPLE 100%
-- expect:
SELECT id, p FROM scored
-- spark:
SELECT id, predict('churn', *) AS p FROM customers TABLESAMPLE (100 PERCENT)

-- name: using sample with a seed and a filter of a call
SELECT count(*) <= 12 AS few, bool_and(predict('churn', *) IN ('yes', 'no')) AS known
FROM (FROM customers USING SAMPLE reservoir(12 ROWS) REPEATABLE (7))
-- expect:
SELECT true AS few, true AS known
-- spark:
SELECT count(*) <= 12 AS few, bool_and(predict('churn', *) IN ('yes', 'no')) AS known
FROM (SELECT * FROM customers TABLESAMPLE (12 ROWS) REPEATABLE (7))

-- name: a from of no rows
SELECT id, predict('churn', *) AS p, predict_proba('risk', *) AS rp FROM customers WHERE false
-- expect:
SELECT id, p, rp FROM scored WHERE false

-- name: aggregates over no rows
SELECT count(predict('churn', *)) AS n, sum(predict('value', *)) AS s FROM customers WHERE id < 0
-- expect:
SELECT 0::BIGINT AS n, NULL::DOUBLE AS s

-- name: grouping of a rollup beside calls
SELECT plan, GROUPING(plan) AS total, count(*) FILTER (predict('churn', *) = 'yes') AS n
FROM customers GROUP BY ROLLUP (plan)
-- expect:
SELECT plan, GROUPING(plan) AS total, count(*) FILTER (p = 'yes') AS n FROM scored GROUP BY ROLLUP (plan)
-- spark:
SELECT plan, GROUPING(plan)::BIGINT AS total, count(*) FILTER (WHERE predict('churn', *) = 'yes') AS n
FROM customers GROUP BY ROLLUP (plan)

-- name: like with an escape that is an expression
SELECT id FROM customers WHERE predict('churn', *) LIKE 'y%' ESCAPE lower('X') AND name LIKE '%a%' ESCAPE concat('', '!')
-- expect:
SELECT id FROM scored WHERE p = 'yes' AND name LIKE '%a%'
-- spark gap: ESCAPE takes a string there
