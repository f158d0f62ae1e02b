-- a filter of a model that refuses NULL
SELECT a FROM t WHERE predict('near', *) = 1;
-- without the rule
SELECT a FROM t WHERE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_c("a", "b"), 1)) = 1;
-- with it
SELECT a FROM t WHERE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_once_c("a", "b"), 1)) = 1;
