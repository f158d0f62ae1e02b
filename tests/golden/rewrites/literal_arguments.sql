-- a number
SELECT predict('forest', *, b := 0.25) AS y FROM t;
-- becomes
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_k1f3fd(list_value("a")::DOUBLE[1]), 1)) AS y FROM t;

-- an expression is none
SELECT predict('forest', *, b := 0.5 / 2) AS y FROM t;
-- becomes
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu(list_value("a", CAST((0.5 / 2) AS DOUBLE))::DOUBLE[2]), 1)) AS y FROM t;
