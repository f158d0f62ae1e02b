-- a key that is unique
SELECT predict('forest', *) AS y FROM t LEFT JOIN d ON t.k = d.id;
-- without the rule
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1)) AS y FROM t LEFT JOIN d ON t.k = d.id;
-- with it
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1)) AS y FROM t ;
