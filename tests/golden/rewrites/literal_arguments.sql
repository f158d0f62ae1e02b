-- a number
SELECT predict('forest', *, b := 0.25) AS y FROM t;
-- becomes
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_k1f3fd_c("a"), 1)) AS y FROM t;

-- an expression is none
SELECT predict('forest', *, b := 0.5 / 2) AS y FROM t;
-- becomes
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", CAST((0.5 / 2) AS DOUBLE)), 1)) AS y FROM t;
