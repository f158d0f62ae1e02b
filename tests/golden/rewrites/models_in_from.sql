-- a filter and a column
SELECT *, predict('forest', *) AS y FROM t WHERE predict_proba('forest', *, class := 1) > 0.8 AND k > 2;
-- without the rule
SELECT *, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_again_c("a", "b"), 'label'), 1)) AS y FROM t WHERE struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_again_once_c("a", "b"), 'proba1') > 0.8 AND k > 2;
-- with it
SELECT * EXCLUDE ("sqlml_forest_label_proba1_f64_native_traverse_cpu_once_c"), array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(struct_extract("sqlml_forest_label_proba1_f64_native_traverse_cpu_once_c", 'label'), 1)) AS y FROM (SELECT *, sqlml_forest_label_proba1_f64_native_traverse_cpu_once_c("a", "b") AS "sqlml_forest_label_proba1_f64_native_traverse_cpu_once_c" FROM t) AS t WHERE struct_extract("sqlml_forest_label_proba1_f64_native_traverse_cpu_once_c", 'proba1') > 0.8 AND k > 2;
