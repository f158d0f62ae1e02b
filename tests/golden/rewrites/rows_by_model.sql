-- a column of names
SELECT k, predict(model, *) AS y FROM named WHERE k > 1;
-- without the rule
SELECT k, (CASE WHEN (model) IS NULL THEN NULL ELSE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_named_forest_near((model), "a", "b"), 1)) END) AS y FROM named WHERE k > 1;
-- with it
SELECT k, "sqlml_models" AS y FROM (SELECT * EXCLUDE (sqlml_number) FROM (SELECT *, (CASE WHEN (model) IS NULL THEN NULL ELSE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_named_forest_near((model), "a", "b"), 1)) END) AS "sqlml_models" FROM (SELECT *, row_number() OVER () AS sqlml_number FROM named WHERE k > 1 ORDER BY (model)) AS named) AS named ORDER BY sqlml_number) AS named WHERE TRUE;

-- groups, whose rows need no order
SELECT model, avg(predict(model, *)) AS y FROM named WHERE k > 1 GROUP BY model;
-- without the rule
SELECT model, avg((CASE WHEN (model) IS NULL THEN NULL ELSE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_named_forest_near((model), "a", "b"), 1)) END)) AS y FROM named WHERE k > 1 GROUP BY model;
-- with it
SELECT model, avg("sqlml_models") AS y FROM (SELECT *, (CASE WHEN (model) IS NULL THEN NULL ELSE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_named_forest_near((model), "a", "b"), 1)) END) AS "sqlml_models" FROM (SELECT * FROM named WHERE k > 1 ORDER BY (model)) AS named) AS named WHERE TRUE GROUP BY model;
