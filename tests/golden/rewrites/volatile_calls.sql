-- a filter of a model that refuses NULL
SELECT a FROM t WHERE predict('near', *) = 1;
-- without the rule
SELECT a FROM t WHERE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_c("a", "b"), 1)) = 1;
-- with it
SELECT a FROM t WHERE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_once_c("a", "b"), 1)) = 1;

-- a key of a query in another
SELECT y FROM (SELECT predict('near', t.*) AS y FROM t GROUP BY predict('near', a, b) ORDER BY predict('near', *)) AS x;
-- without the rule
SELECT y FROM (SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_c(t."a", t."b"), 1)) AS y FROM t GROUP BY array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_c(a, b), 1)) ORDER BY array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_c("a", "b"), 1))) AS x;
-- with it
SELECT y FROM (SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_once_c(t."a", t."b"), 1)) AS y FROM t GROUP BY array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_once_c(a, b), 1)) ORDER BY array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_once_c("a", "b"), 1))) AS x;
