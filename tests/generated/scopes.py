"""What a call sees where it stands: statements that were read by keywords once, and bound wrongly."""

# ruff: noqa: E501 (statements, one a line)

from __future__ import annotations

SCOPES = (
    (
        "ON sees the tables of later joins",
        "SELECT x.id FROM t3 x JOIN t4 z ON x.id = z.id AND predict('tree', 1, g) <> 'no' JOIN t1 y ON x.id = y.id",
        "SELECT x.id FROM t3 x JOIN t4 z ON x.id = z.id AND tree_predict(1, g) <> 'no' JOIN t1 y ON x.id = y.id",
    ),
    (
        "LATERAL sees relations to its right",
        "SELECT y.n FROM t4 x, LATERAL (SELECT predict('one', coalesce(h, 1)) AS n) y, t4 z",
        "SELECT y.n FROM t4 x, LATERAL (SELECT one_predict(coalesce(h, 1)) AS n) y, t4 z",
    ),
    (
        "RETURNING of DELETE .. USING and UPDATE .. FROM sees the other tables",
        "DELETE FROM d USING t1 x WHERE x.id = d.id RETURNING predict('one', coalesce(a, 1)) AS n",
        "DELETE FROM d USING t1 x WHERE x.id = d.id RETURNING one_predict(coalesce(a, 1)) AS n",
    ),
    (
        "MERGE .. WHEN NOT MATCHED sees both tables",
        "MERGE INTO d USING t1 x ON d.id = x.id WHEN NOT MATCHED THEN INSERT (id, w) VALUES (x.id, predict('one', coalesce(a, 1)))",
        "MERGE INTO d USING t1 x ON d.id = x.id WHEN NOT MATCHED THEN INSERT (id, w) VALUES (x.id, one_predict(coalesce(a, 1)))",
    ),
    (
        "ON CONFLICT DO UPDATE SET takes a bare name for that of both rows",
        "INSERT INTO d FROM d ON CONFLICT (id) DO UPDATE SET w = predict('tree', excluded.a, g) = 'no'",
        "INSERT INTO d FROM d ON CONFLICT (id) DO UPDATE SET w = tree_predict(excluded.a, g) = 'no'",
    ),
    (
        "a PIVOT with a call in USING inside CREATE TABLE AS",
        "CREATE TEMP TABLE p AS PIVOT t2 ON s IN ('red') USING max(predict('tree', a, g))",
        "CREATE TEMP TABLE p AS PIVOT t2 ON s IN ('red') USING max(tree_predict(a, g))",
    ),
    (
        "a call in the ON of an ANTI JOIN before a JOIN .. USING",
        "SELECT id FROM t1 x ANTI JOIN t2 y ON x.id = y.id AND predict('one', y.a) > 9 JOIN t4 USING (id)",
        "SELECT id FROM t1 x ANTI JOIN t2 y ON x.id = y.id AND one_predict(y.a) > 9 JOIN t4 USING (id)",
    ),
    (
        "a star in the ON of an ANTI JOIN means the left side alone",
        "SELECT x.id FROM t4 x ANTI JOIN t2 y ON x.id = y.id AND predict('tree', *) = 'low'",
        "SELECT x.id FROM t4 x ANTI JOIN t2 y ON x.id = y.id AND tree_predict(a, g) = 'low'",
    ),
    (
        "a filter of constants is not folded when it calls a model, and runs behind one that is pushed to it",
        "SELECT id FROM (SELECT id, s FROM t2 UNION ALL SELECT id, CASE WHEN predict('lr', *) = 1 THEN s ELSE 'no' END AS s FROM t1 WHERE list_sum(list_transform([0, 2, 5], lambda u: predict_proba('tree', g => 0, a => u, class := 'it''s'))) > 1.2345678) x WHERE s LIKE '%e%'",
        "SELECT id FROM (SELECT id, s FROM t2 UNION ALL SELECT id, CASE WHEN lr_predict(a, b) = 1 THEN s ELSE 'no' END AS s FROM t1 WHERE list_sum(list_transform([0, 2, 5], lambda u: tree_predict_proba_its(u, 0))) > 1.2345678) x WHERE s LIKE '%e%'",
    ),
    (
        "an update's RETURNING sees the changed table alone",
        "UPDATE d SET w = true FROM t1 x WHERE x.id = d.id RETURNING predict('one', coalesce(a, 1)) AS n",
        "UPDATE d SET w = true FROM t1 x WHERE x.id = d.id RETURNING one_predict(coalesce(a, 1)) AS n",
    ),
    (
        "what MERGE does with a row of the table alone",
        "MERGE INTO d USING t1 x ON d.id = x.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = predict('one', coalesce(a, 1))",
        "MERGE INTO d USING t1 x ON d.id = x.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = one_predict(coalesce(a, 1))",
    ),
    (
        "a window in a call in QUALIFY, within another call",
        "SELECT id FROM t1 QUALIFY predict('one', coalesce(predict('one', max(coalesce(a, 1)) OVER (PARTITION BY g)), 1) * 0 + coalesce(a, 1)) > -9",
        "SELECT id FROM t1 QUALIFY one_predict(coalesce(one_predict(max(coalesce(a, 1)) OVER (PARTITION BY g)), 1) * 0 + coalesce(a, 1)) > -9",
    ),
    (
        "a definition of WITH that nobody uses, of a table that is not there",
        "WITH x AS (SELECT predict('one', a) FROM nowhere) SELECT id FROM t1",
        "WITH x AS (SELECT one_predict(a) FROM nowhere) SELECT id FROM t1",
    ),
    (
        "rows of the table form whose columns another call reads",
        "WITH s AS (FROM ml_predict(MODEL tree, (SELECT id, a, g FROM t1 WHERE a IS NOT NULL AND g IS NOT NULL))) SELECT id, predict('one', coalesce(a, 1)) AS n FROM s",
        "SELECT id, one_predict(coalesce(a, 1)) AS n FROM t1 WHERE a IS NOT NULL AND g IS NOT NULL",
    ),
    (
        "the condition of a join within brackets",
        "SELECT x.id FROM (t3 x JOIN t4 z ON x.id = z.id AND predict('tree', 1, g) <> 'no') JOIN t1 y ON x.id = y.id",
        "SELECT x.id FROM (t3 x JOIN t4 z ON x.id = z.id AND tree_predict(1, g) <> 'no') JOIN t1 y ON x.id = y.id",
    ),
)
"""What it is about, the statement, and the same with predictions in place of the calls."""
