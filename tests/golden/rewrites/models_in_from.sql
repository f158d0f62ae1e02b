-- a filter and a column
SELECT *, predict('forest', *) AS y FROM t WHERE predict_proba('forest', *, class := 1) > 0.8 AND k > 2;
-- without the rule
SELECT *, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(CAST(array_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_again(list_value("a", "b")::DOUBLE[2]), 1) AS INTEGER), 1)) AS y FROM t WHERE array_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_again_once(list_value("a", "b")::DOUBLE[2]), 2) > 0.8 AND k > 2;
-- with it
SELECT * EXCLUDE ("sqlml_forest_label_proba1_f64_native_traverse_cpu_once"), array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(CAST(array_extract("sqlml_forest_label_proba1_f64_native_traverse_cpu_once", 1) AS INTEGER), 1)) AS y FROM (SELECT *, sqlml_forest_label_proba1_f64_native_traverse_cpu_once(list_value("a", "b")::DOUBLE[2]) AS "sqlml_forest_label_proba1_f64_native_traverse_cpu_once" FROM t) AS t WHERE array_extract("sqlml_forest_label_proba1_f64_native_traverse_cpu_once", 2) > 0.8 AND k > 2;
