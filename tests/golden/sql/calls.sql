-- Pairs of queries, separated by lines of dashes: one that calls models on table customers,
-- and the same over table scored, which has the source library's own label p and probability
-- of 'yes' q as columns. A test runs both and compares the rows.

SELECT id, predict('churn', *) FROM customers;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict_proba('churn', *, class := 'yes') AS q FROM customers c;
SELECT id, q FROM scored c;
--------------------------------
SELECT id, predict('churn', c.*) FROM customers c;
SELECT id, p FROM scored c;
--------------------------------
SELECT id, predict('churn', * EXCLUDE (id)) FROM customers;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', * EXCLUDE id) FROM customers;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', * REPLACE (lower(upper(plan)) AS plan)) FROM customers;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', * RENAME (t AS tenure)) FROM (SELECT * RENAME (tenure AS t) FROM
    customers);
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', tenure := t, plan := p2, charges := c, region := r) FROM (SELECT id,
    tenure t, plan p2, charges c, region r FROM customers);
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', {'tenure': tenure, 'plan': plan, 'charges': charges, 'region':
    region}) FROM customers;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', struct_pack(tenure := tenure, plan := plan, charges := charges,
    region := region)) FROM customers;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', tenure, charges, plan, region) FROM customers;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', c) FROM customers c;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', s) FROM (SELECT id, c AS s FROM customers c);
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', COLUMNS('tenure|charges|plan|region')) FROM customers;
SELECT id, p FROM scored;
--------------------------------
SELECT id FROM customers WHERE predict_proba('churn', *, class := 'yes') > 0.5;
SELECT id FROM scored WHERE q > 0.5;
--------------------------------
SELECT predict('churn', *) AS g, count(*) FROM customers GROUP BY g;
SELECT p g, count(*) FROM scored GROUP BY g;
--------------------------------
SELECT predict('churn', *), count(*) FROM customers GROUP BY predict('churn', *);
SELECT p, count(*) FROM scored GROUP BY p;
--------------------------------
SELECT predict('churn', *), count(*) FROM customers GROUP BY ALL;
SELECT p, count(*) FROM scored GROUP BY ALL;
--------------------------------
SELECT id FROM customers ORDER BY predict_proba('churn', *, class := 'yes') DESC, id LIMIT 20;
SELECT id FROM scored ORDER BY q DESC, id LIMIT 20;
--------------------------------
SELECT sum(predict_proba('churn', *, class := 'yes')), avg(predict_proba('churn', *, class :=
    'yes')) FILTER (WHERE id > 50) FROM customers;
SELECT sum(q), avg(q) FILTER (WHERE id > 50) FROM scored;
--------------------------------
SELECT plan FROM customers GROUP BY plan HAVING avg(predict_proba('churn', *, class := 'yes')) >
    0.4;
SELECT plan FROM scored GROUP BY plan HAVING avg(q) > 0.4;
--------------------------------
SELECT id FROM customers QUALIFY row_number() OVER (PARTITION BY plan ORDER BY
    predict_proba('churn', *, class := 'yes'), id) = 1;
SELECT id FROM scored QUALIFY row_number() OVER (PARTITION BY plan ORDER BY q, id) = 1;
--------------------------------
SELECT id, rank() OVER w FROM customers WINDOW w AS (ORDER BY predict_proba('churn', *, class :=
    'yes'));
SELECT id, rank() OVER w FROM scored WINDOW w AS (ORDER BY q);
--------------------------------
WITH s AS (SELECT *, predict_proba('churn', *, class := 'yes') AS q FROM customers) SELECT id, q
    FROM s WHERE q > 0.3;
SELECT id, q FROM scored WHERE q > 0.3;
--------------------------------
WITH a AS (SELECT * FROM customers WHERE id < 50), b AS (SELECT * FROM a WHERE id > 10) SELECT
    id, predict('churn', *) FROM b;
SELECT id, p FROM scored WHERE id < 50 AND id > 10;
--------------------------------
SELECT id, q FROM (SELECT id, predict_proba('churn', *, class := 'yes') AS q FROM customers)
    WHERE q < 0.2;
SELECT id, q FROM scored WHERE q < 0.2;
--------------------------------
SELECT c.id, (SELECT predict('churn', i.*) FROM customers i WHERE i.id = c.id) FROM customers c;
SELECT id, p FROM scored;
--------------------------------
SELECT c.id, (SELECT predict('churn', c.tenure, i.charges, i.plan, i.region) FROM customers i
    WHERE i.id = c.id) FROM customers c;
SELECT id, p FROM scored;
--------------------------------
SELECT c.id, l.x FROM customers c, LATERAL (SELECT predict('churn', c.*) AS x) l;
SELECT id, p FROM scored;
--------------------------------
SELECT a.id, predict('churn', a.*) FROM customers a JOIN customers b ON a.id = b.id;
SELECT id, p FROM scored;
--------------------------------
SELECT id, predict('churn', *) FROM (SELECT id, tenure, plan FROM customers) JOIN (SELECT id,
    charges, region FROM customers) USING (id);
SELECT id, p FROM scored;
--------------------------------
SELECT a.id FROM customers a JOIN (SELECT 'yes' AS want) w ON predict('churn', a.*) = w.want;
SELECT id FROM scored WHERE p = 'yes';
--------------------------------
SELECT predict('churn', a.* EXCLUDE (id)), a.id FROM customers a, (SELECT 1 AS tenure) x;
SELECT p, id FROM scored;
--------------------------------
SELECT id, predict('churn', * EXCLUDE (x.tenure)) FROM customers a, (SELECT 1 AS tenure) x;
SELECT id, p FROM scored;
--------------------------------
FROM customers SELECT id, predict('churn', *);
SELECT id, p FROM scored;
--------------------------------
FROM customers SELECT id WHERE predict_proba('churn', *, class := 'yes') > 0.5;
SELECT id FROM scored WHERE q > 0.5;
--------------------------------
SELECT id, predict('churn', *) FROM customers WHERE id < 9 UNION ALL SELECT id, predict('churn',
    *) FROM customers WHERE id > 490;
SELECT id, p FROM scored WHERE id < 9 OR id > 490;
--------------------------------
SELECT id, CASE WHEN predict('churn', *) = 'yes' THEN 1 ELSE 0 END FROM customers;
SELECT id, (p = 'yes')::INT FROM scored;
--------------------------------
SELECT id FROM customers WHERE predict('churn', *) IN ('yes') AND tenure IS DISTINCT FROM NULL;
SELECT id FROM scored WHERE p = 'yes' AND tenure IS NOT NULL;
--------------------------------
SELECT id, [predict_proba('churn', *, class := 'yes'), 1.0] FROM customers;
SELECT id, [q, 1.0] FROM scored;
--------------------------------
SELECT count(*) FROM customers WHERE EXISTS (SELECT 1 WHERE predict_proba('churn', customers.*,
    class := 'yes') > 0.5);
SELECT count(*) FROM scored WHERE q > 0.5;
--------------------------------
SELECT PREDICT('CHURN', *), id FROM Customers;
SELECT p, id FROM scored;
--------------------------------
SELECT predict /* a */ ('churn' -- b
 , *), id FROM customers;
SELECT p, id FROM scored;
--------------------------------
SELECT predict('churn/1', *), predict('churn@last', *), id FROM customers;
SELECT p, p, id FROM scored;
--------------------------------
SELECT id, predict_proba('churn', *)['no'] FROM customers;
SELECT id, 1 - q FROM scored;
--------------------------------
SELECT id, predict_proba('churn', *, class := 'no') + predict_proba('churn', *)['yes'] FROM
    customers;
SELECT id, 1.0 FROM scored;
--------------------------------
