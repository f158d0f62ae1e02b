-- a filter of a model that refuses NULL
SELECT a FROM t WHERE predict('near', *) = 1;
-- without the rule
SELECT a FROM t WHERE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu(list_value("a", "b")::DOUBLE[2]), 1)) = 1;
-- with it
SELECT a FROM t WHERE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_near_label_f64_native_traverse_cpu_once(list_value("a", "b")::DOUBLE[2]), 1)) = 1;
