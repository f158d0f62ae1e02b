-- name: from inside of functions
SELECT id, predict('value', charges := extract(day FROM joined), visits := visits) AS v, substring(plan FROM predict('risk', *)::INT + 1 FOR 2) AS s FROM customers
-- rows:
SELECT id, extract(day FROM joined) AS charges, visits FROM customers
-- expect:
SELECT s.id, g.v, substring(plan, r::INT + 1, 2) AS s FROM scored s JOIN given g USING (id)

-- name: trim, position and overlapping words
SELECT id, predict('churn', * REPLACE (trim(both ' ' FROM plan || ' ') AS plan)) AS p, position('a' IN plan) AS n FROM customers
-- expect:
SELECT id, p, position('a' IN plan) AS n FROM scored
-- spark:
SELECT id, predict('churn', * EXCEPT (plan), plan := trim(BOTH ' ' FROM plan || ' ')) AS p, position('a' IN plan) AS n FROM customers

-- name: a call as an index and as bounds of a slice
SELECT id, ['a', 'b', 'c'][predict('risk', *) + 1] AS x, 'abcdef'[predict('risk', *):predict('risk', *) + 2] AS y FROM customers
-- expect:
SELECT id, ['a', 'b', 'c'][r + 1] AS x, 'abcdef'[r:r + 2] AS y FROM scored
-- spark:
SELECT id, array('a', 'b', 'c')[predict('risk', *)] AS x, substring(left('abcdef', predict('risk', *)::INT + 2), predict('risk', *)::INT) AS y FROM customers

-- name: intervals and dates from a call
SELECT id, joined + INTERVAL (predict('risk', *)) DAY AS a, joined + predict('risk', *)::INTEGER AS b, date_part('month', joined) + predict('risk', *) AS c FROM customers
-- expect:
SELECT id, joined + INTERVAL (r) DAY AS a, joined + r::INTEGER AS b, date_part('month', joined) + r AS c FROM scored
-- spark:
SELECT id, joined::TIMESTAMP_NTZ + INTERVAL '1' DAY * predict('risk', *) AS a, joined + predict('risk', *)::INTEGER AS b, date_part('month', joined) + predict('risk', *) AS c FROM customers

-- name: is null, is true and not
SELECT id, predict('loyal', *) IS TRUE AS a, NOT predict('loyal', *) AS b, predict('churn', *) IS NOT NULL AS c, predict('loyal', *) IS NOT DISTINCT FROM true AS d FROM customers
-- expect:
SELECT id, l AS a, NOT l AS b, true AS c, l AS d FROM scored

-- name: like, glob, similar to and a collation
SELECT id FROM customers WHERE predict('churn', *) ILIKE 'Y%' AND predict('churn', *) GLOB 'y*' AND predict('churn', *) SIMILAR TO 'y.s' AND predict('churn', *) COLLATE NOCASE = 'YES'
-- expect:
SELECT id FROM scored WHERE p = 'yes'
-- spark:
SELECT id FROM customers WHERE predict('churn', *) ILIKE 'Y%' AND predict('churn', *) LIKE 'y%' AND predict('churn', *) RLIKE '^y.s$' AND predict('churn', *) COLLATE UTF8_LCASE = 'YES'

-- name: between and in with calls on every side
SELECT id FROM customers WHERE 0.5 BETWEEN predict_proba('risk', *, class := 0) AND predict_proba('risk', *, class := 0) + predict_proba('risk', *, class := 1) AND predict('risk', *) IN (predict('risk', *), 7)
-- expect:
SELECT id FROM scored WHERE 0.5 BETWEEN r0 AND r0 + r1

-- name: precedence of casts, powers and subscripts
SELECT id, predict('value', *)::INT AS a, -predict('value', *) AS b, 2 ** predict('risk', *) AS c, 10 - predict('risk', *) - 1 AS d, NOT predict('loyal', *) = true AS e FROM customers
-- expect:
SELECT id, v::INT AS a, -v AS b, 2 ** r AS c, 10 - r - 1 AS d, NOT l = true AS e FROM scored
-- spark:
SELECT id, predict('value', *)::DECIMAL(9, 0)::INT AS a, -predict('value', *) AS b, power(2, predict('risk', *)) AS c, 10 - predict('risk', *) - 1 AS d, NOT predict('loyal', *) = true AS e FROM customers

-- name: if, try_cast and error handling functions
SELECT id, if(predict('loyal', *), 'a', 'b') AS a, try_cast(predict('churn', *) AS INTEGER) AS b, ifnull(nullif(predict('risk', *), 0), -1) AS c FROM customers
-- expect:
SELECT id, if(l, 'a', 'b') AS a, NULL::INTEGER AS b, ifnull(nullif(r, 0), -1) AS c FROM scored

-- name: string functions, format and printf
SELECT id, format('{}:{:.3f}', predict('churn', *), predict('value', *)) AS a, printf('%d', predict('risk', *)) AS b, predict('churn', *) || '-' || plan AS c FROM customers
-- expect:
SELECT id, format('{}:{:.3f}', p, v) AS a, printf('%d', r) AS b, p || '-' || plan AS c FROM scored
-- spark:
SELECT id, format_string('%s:%.3f', predict('churn', *), predict('value', *)) AS a, printf('%d', predict('risk', *)) AS b, predict('churn', *) || '-' || plan AS c FROM customers

-- name: a chain of methods
SELECT id, predict('churn', *).upper().left(1).concat('!') AS a, (predict('value', *)).round(1) AS b FROM customers
-- expect:
SELECT id, upper(p)[1] || '!' AS a, round(v, 1) AS b FROM scored
-- spark gap: Spark calls no functions as methods behind a dot

-- name: a trailing comma in the select list
SELECT id, predict('churn', *) AS p, FROM customers
-- expect:
SELECT id, p FROM scored
-- spark gap: Spark allows no trailing comma in a select list

-- name: a trailing comma behind a call without a name
SELECT id, predict('risk', *), FROM customers
-- expect:
SELECT id, r AS "predict('risk', *)" FROM scored
-- spark gap: Spark allows no trailing comma in a select list

-- name: select all, and a statement in brackets
((SELECT ALL id, predict('value', *COLUMNS('charges|visits')) AS v FROM customers))
-- expect:
SELECT id, v FROM scored
-- spark:
((SELECT ALL id, predict('value', charges, visits) AS v FROM customers))

-- name: brackets around calls
SELECT ((id)) AS id, ((predict('churn', *))) AS p, (predict('value', ((charges)), (visits))) AS v FROM ((FROM customers))
-- expect:
SELECT id, p, v FROM scored

-- name: a call in brackets without a name
SELECT id, (predict('churn', *)) FROM customers
-- expect:
SELECT id, p AS "predict('churn', *)" FROM scored

-- name: a call and a number with one name
SELECT predict('value', *) AS x, 1 AS x, id FROM customers
-- expect:
SELECT v AS x, 1 AS x, id FROM scored

-- name: twenty calls of three models
SELECT id, predict('value', *) + predict('value', *) + predict('value', *) + predict('value', *) + predict('value', *) AS a,
    predict('risk', *) + predict('risk', *) * predict('risk', *) + predict('risk', *) + predict('risk', *) AS b,
    predict('churn', *) || predict('churn', *) || predict('churn', *) || predict('churn', *) || predict('churn', *) AS c,
    [predict('loyal', *), predict('loyal', *), predict('loyal', *), predict('loyal', *), predict('loyal', *)] AS d FROM customers
-- expect:
SELECT id, 5 * v AS a, r + r * r + r + r AS b, p || p || p || p || p AS c, [l, l, l, l, l] AS d FROM scored
-- spark:
SELECT id, predict('value', *) + predict('value', *) + predict('value', *) + predict('value', *) + predict('value', *) AS a,
    predict('risk', *) + predict('risk', *) * predict('risk', *) + predict('risk', *) + predict('risk', *) AS b,
    predict('churn', *) || predict('churn', *) || predict('churn', *) || predict('churn', *) || predict('churn', *) AS c,
    array(predict('loyal', *), predict('loyal', *), predict('loyal', *), predict('loyal', *), predict('loyal', *)) AS d FROM customers

-- name: group, having and order by the same call
SELECT predict('churn', *) AS p, count(*) AS n FROM customers WHERE predict('churn', *) <> 'maybe' GROUP BY predict('churn', *) HAVING predict('churn', *) IN ('yes', 'no') ORDER BY predict('churn', *)
-- expect:
SELECT p, count(*) AS n FROM scored GROUP BY p ORDER BY p

-- name: group by a comparison
SELECT predict('value', *) > 50 AS rich, count(*) AS n FROM customers GROUP BY predict('value', *) > 50
-- expect:
SELECT v > 50 AS rich, count(*) AS n FROM scored GROUP BY v > 50

-- name: a deep nest of cases
SELECT id, CASE WHEN CASE WHEN predict('loyal', *) THEN predict('churn', *) ELSE 'no' END = 'yes' THEN CASE predict('risk', *) WHEN 0 THEN 'a' ELSE 'b' END ELSE plan END AS x FROM customers
-- expect:
SELECT id, CASE WHEN l AND p = 'yes' THEN CASE r WHEN 0 THEN 'a' ELSE 'b' END ELSE plan END AS x FROM scored

-- name: order by a position and by a name in quotes
SELECT id, predict('value', *) AS "The Worth" FROM customers ORDER BY #2 DESC, "The Worth", 1
-- expect:
SELECT id, v AS "The Worth" FROM scored ORDER BY v DESC, id
-- spark:
SELECT id, predict('value', *) AS `The Worth` FROM customers ORDER BY 2 DESC, `The Worth`, 1

-- name: a chosen class in an expression as wide as the row
SELECT id, round(predict_proba('churn', *, class := 'yes'), 1) = round(1 - predict_proba('churn', *, class := 'no'), 1) AS same FROM customers
-- expect:
SELECT id, true AS same FROM scored
