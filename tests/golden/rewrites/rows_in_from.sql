-- a row that is packed once
SELECT a, predict('forest', *) AS y FROM t WHERE k > 2;
-- without the rule
SELECT a, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1)) AS y FROM t WHERE k > 2;
-- with it
SELECT a, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu("sqlml_row_aee450c5ee07608c6012c59f"), 1)) AS y FROM (SELECT *, list_value("a", "b")::DOUBLE[2] AS "sqlml_row_aee450c5ee07608c6012c59f" FROM t) AS t WHERE k > 2;

-- filters below
SELECT a, predict('forest', *) AS y FROM t WHERE k > 2 AND predict('forest', *) = 1;
-- without the rule
SELECT a, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"("sqlml_forest_label_f64_native_traverse_cpu_once_c", 1)) AS y FROM (SELECT *, sqlml_forest_label_f64_native_traverse_cpu_once_c("a", "b") AS "sqlml_forest_label_f64_native_traverse_cpu_once_c" FROM t) AS t WHERE k > 2 AND array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"("sqlml_forest_label_f64_native_traverse_cpu_once_c", 1)) = 1;
-- with it
SELECT a, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"("sqlml_forest_label_f64_native_traverse_cpu_once", 1)) AS y FROM (SELECT *, sqlml_forest_label_f64_native_traverse_cpu_once("sqlml_row_aee450c5ee07608c6012c59f") AS "sqlml_forest_label_f64_native_traverse_cpu_once" FROM (SELECT *, list_value("a", "b")::DOUBLE[2] AS "sqlml_row_aee450c5ee07608c6012c59f" FROM t WHERE k > 2) AS t) AS t WHERE TRUE AND array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"("sqlml_forest_label_f64_native_traverse_cpu_once", 1)) = 1;
