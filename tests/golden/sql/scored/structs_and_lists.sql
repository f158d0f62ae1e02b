-- name: a struct column as all features
SELECT id, predict('churn', c) AS p FROM boxes
-- expect:
SELECT id, p FROM scored WHERE id < 40

-- name: the star of a struct column
SELECT id, predict('churn', c.*) AS p FROM boxes
-- expect:
SELECT id, p FROM scored WHERE id < 40

-- name: fields of a struct by their names
SELECT id, predict('risk', tenure := c.tenure, charges := boxes.c.charges, visits := c['visits']) AS r FROM boxes
-- expect:
SELECT id, r FROM scored WHERE id < 40

-- name: a struct behind an alias of its table
SELECT b.id, predict('value', b.c) AS v, predict('loyal', b.c) AS l FROM boxes b
-- expect:
SELECT id, v, l FROM scored WHERE id < 40

-- name: an element of a list of structs
SELECT id, predict('value', cs[1]) AS v FROM boxes
-- expect:
SELECT id, v FROM scored WHERE id < 40
-- spark:
SELECT id, predict('value', cs[0]) AS v FROM boxes

-- name: an unnested list of structs
SELECT id, predict('value', u) AS v FROM (SELECT id, unnest(cs) AS u FROM boxes)
-- rows:
SELECT id, u.charges, u.visits FROM (SELECT id, unnest(cs) AS u FROM boxes)
-- expect:
SELECT id, v FROM given
-- spark:
SELECT id, predict('value', u) AS v FROM (SELECT id, explode(cs) AS u FROM boxes)

-- name: a recursive unnest gives columns
SELECT id, predict('value', *) AS v FROM (SELECT id, unnest(cs, recursive := true) FROM boxes)
-- rows:
SELECT id, unnest(cs, recursive := true) FROM boxes
-- expect:
SELECT id, v FROM given
-- spark:
SELECT id, predict('value', *) AS v FROM (SELECT id, inline(cs) FROM boxes)

-- name: a row of a subquery as a struct
SELECT s.id, predict('churn', s) AS p FROM (SELECT * FROM customers WHERE plan = 'pro') s
-- expect:
SELECT id, p FROM scored WHERE plan = 'pro'
-- spark:
SELECT s.id, predict('churn', struct(s.*)) AS p FROM (SELECT * FROM customers WHERE plan = 'pro') s

-- name: a row packed below and scored above
SELECT k, predict('churn', packed) AS p FROM (SELECT id AS k, c AS packed FROM customers c)
-- expect:
SELECT id AS k, p FROM scored
-- spark:
SELECT k, predict('churn', packed) AS p FROM (SELECT id AS k, struct(c.*) AS packed FROM customers c)

-- name: struct_insert and struct functions
SELECT id, predict('value', struct_insert({'visits': visits}, charges := charges)) AS v FROM customers
-- expect:
SELECT id, v FROM scored
-- spark:
SELECT id, predict('value', struct(s.*, charges)) AS v FROM (SELECT id, charges, struct(visits) AS s FROM customers)

-- name: a struct with a cast
SELECT id, predict('value', {'charges': charges::FLOAT::DOUBLE, 'visits': visits::SMALLINT}) AS v FROM customers
-- rows:
SELECT id, charges::FLOAT::DOUBLE AS charges, visits FROM customers
-- expect:
SELECT id, v FROM given

-- name: a nested struct field
SELECT predict('value', o.inside.c, o.inside.n) AS v FROM (SELECT {'inside': {'c': charges, 'n': visits}} AS o FROM customers)
-- expect:
SELECT v FROM scored
-- spark:
SELECT predict('value', o.inside.c, o.inside.n) AS v
FROM (SELECT named_struct('inside', named_struct('c', charges, 'n', visits)) AS o FROM customers)

-- name: a struct inside a struct as all features
SELECT predict('loyal', o.inside) AS l FROM (SELECT {'inside': {'tenure': tenure, 'visits': visits}} AS o FROM customers)
-- expect:
SELECT l FROM scored
-- spark:
SELECT predict('loyal', o.inside) AS l
FROM (SELECT named_struct('inside', struct(tenure, visits)) AS o FROM customers)

-- name: features from a map
SELECT id, predict('value', charges := f['charges'], visits := f['visits']) AS v FROM (SELECT id, MAP {'charges': charges, 'visits': visits::DOUBLE} AS f FROM customers)
-- expect:
SELECT id, v FROM scored
-- spark:
SELECT id, predict('value', charges := f['charges'], visits := f['visits']) AS v
FROM (SELECT id, map('charges', charges, 'visits', visits::DOUBLE) AS f FROM customers)

-- name: features from a list by place and by slice
SELECT id, predict('value', f[1], list_sum(f[2:3])) AS v FROM (SELECT id, [charges, visits, 0.0] AS f FROM customers)
-- expect:
SELECT id, v FROM scored
-- spark:
SELECT id, predict('value', f[0], reduce(slice(f, 2, 2), 0D, (a, x) -> a + x)) AS v
FROM (SELECT id, array(charges, visits, 0.0) AS f FROM customers)

-- name: features from json
SELECT id, predict('risk', (j->>'t')::DOUBLE, (j->>'$.c')::DOUBLE, CAST(json_extract(j, 'v') AS INT)) AS r
FROM (SELECT id, json_object('t', tenure, 'c', charges, 'v', visits) AS j FROM customers)
-- expect:
SELECT id, r FROM scored
-- spark:
SELECT id, predict('risk', get_json_object(j, '$.t')::DOUBLE, variant_get(parse_json(j), '$.c', 'DOUBLE'),
    CAST(get_json_object(j, '$.v') AS INT)) AS r
FROM (SELECT id, to_json(named_struct('t', tenure, 'c', charges, 'v', visits)) AS j FROM customers)

-- name: features from a fixed-size array
SELECT id, predict('value', a[1], a[2]) AS v FROM (SELECT id, array_value(charges, visits::DOUBLE) AS a FROM customers)
-- expect:
SELECT id, v FROM scored
-- spark:
SELECT id, predict('value', a[0], a[1]) AS v FROM (SELECT id, array(charges, visits::DOUBLE) AS a FROM customers)

-- name: features from a union type
SELECT id, predict('value', charges := u.num, visits := visits) AS v FROM (SELECT id, visits, union_value(num := charges)::UNION(num DOUBLE, str VARCHAR) AS u FROM customers)
-- expect:
SELECT id, v FROM scored
-- spark:
SELECT id, predict('value', charges := u::DOUBLE, visits := visits) AS v
FROM (SELECT id, visits, charges::VARIANT AS u FROM customers)

-- name: scores in a list, a struct and a map
SELECT id, [predict_proba('churn', *, class := 'yes'), 1.0] AS a, {'label': predict('churn', *), 'r': predict('risk', *)} AS b, MAP {predict('churn', *): predict('value', *)} AS c FROM customers
-- expect:
SELECT id, [q, 1.0] AS a, {'label': p, 'r': r} AS b, MAP {p: v} AS c FROM scored
-- spark:
SELECT id, array(predict_proba('churn', *, class := 'yes'), 1.0) AS a,
    named_struct('label', predict('churn', *), 'r', predict('risk', *)) AS b,
    map(predict('churn', *), predict('value', *)) AS c FROM customers

-- name: a tuple of scores
SELECT id, (predict('churn', *), predict('loyal', *)) AS both, row(predict('risk', *)) AS one FROM customers
-- expect:
SELECT id, (p, l) AS both, row(r) AS one FROM scored
-- spark gap: Spark has no struct without names of its fields

-- name: slices and methods on a list of scores
SELECT id, predict_score('risk', *)[2:] AS tail, predict_score('risk', *).list_max() AS best, list_position(predict_score('risk', *), list_max(predict_score('risk', *))) - 1 AS place FROM customers
-- expect:
SELECT id, rm[2:] AS tail, list_max(rm) AS best, list_position(rm, list_max(rm)) - 1 AS place FROM scored
-- spark:
SELECT id, slice(predict_score('risk', *), 2, 2) AS tail, array_max(predict_score('risk', *)) AS best,
    array_position(predict_score('risk', *), array_max(predict_score('risk', *))) - 1 AS place FROM customers

-- name: lists of rows of a group, scored one by one
SELECT plan, list(predict('churn', c) ORDER BY c.id) AS ps FROM customers c GROUP BY plan
-- expect:
SELECT plan, list(p ORDER BY id) AS ps FROM scored GROUP BY plan
-- spark:
SELECT plan, transform(array_sort(array_agg(struct(c.id, predict('churn', struct(c.*)) AS p))), s -> s.p) AS ps
FROM customers c GROUP BY plan

-- name: a struct of an aggregate as all features
SELECT plan, predict('value', arg_max({'charges': charges, 'visits': visits}, id)) AS v FROM customers GROUP BY plan
-- expect:
SELECT plan, arg_max(v, id) AS v FROM scored GROUP BY plan
-- spark:
SELECT plan, predict('value', max_by(struct(charges, visits), id)) AS v FROM customers GROUP BY plan

-- name: a table and its struct column share a name
SELECT c.id, predict('value', c.c) AS v FROM boxes c
-- expect:
SELECT id, v FROM scored WHERE id < 40

-- name: tags unnested beside a call
SELECT id, tag, predict('churn', c) AS p FROM boxes, unnest(tags) u(tag)
-- expect:
SELECT s.id, tag, s.p FROM scored s JOIN boxes b USING (id), unnest(b.tags) u(tag)
-- spark:
SELECT id, tag, predict('churn', c) AS p FROM boxes LATERAL VIEW explode(tags) u AS tag

-- name: a struct that is NULL is all missing values
SELECT id, predict_proba('churn', CASE WHEN id % 2 = 0 THEN c END, class := 'yes') AS q FROM boxes WHERE id < 6 AND id % 2 = 0
-- expect:
SELECT id, q FROM scored WHERE id < 6 AND id % 2 = 0
