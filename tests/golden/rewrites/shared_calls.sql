-- two outputs
SELECT predict('forest', *) AS y, predict_proba('forest', *, class := 1) AS p FROM t;
-- without the rule
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1)) AS y, sqlml_forest_proba1_f64_native_traverse_cpu_c("a", "b") AS p FROM t;
-- with it
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_c("a", "b"), 'label'), 1)) AS y, struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_c("a", "b"), 'proba1') AS p FROM t;

-- rows that a filter passes on
SELECT predict('forest', t.*) AS y FROM t, d WHERE predict('forest', t.*) = 1;
-- without the rule
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c(t."a", t."b"), 1)) AS y FROM t, d WHERE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c(t."a", t."b"), 1)) = 1;
-- with it
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_again_c(t."a", t."b"), 1)) AS y FROM t, d WHERE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_again_once_c(t."a", t."b"), 1)) = 1;

-- a query that groups
SELECT predict('forest', *) AS y, max(predict_proba('forest', t.*, class := 1)) AS p FROM t GROUP BY predict('forest', a, b);
-- without the rule
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1)) AS y, max(sqlml_forest_proba1_f64_native_traverse_cpu_c(t."a", t."b")) AS p FROM t GROUP BY array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c(a, b), 1));
-- with it
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_c("a", "b"), 'label'), 1)) AS y, max(struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_c(t."a", t."b"), 'proba1')) AS p FROM t GROUP BY array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_c(a, b), 'label'), 1));
