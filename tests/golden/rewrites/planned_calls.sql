-- a model that rows name
SELECT predict(model, *) AS y FROM named WHERE k > 2;
-- becomes
SELECT (CASE WHEN (model) IS NULL THEN NULL ELSE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_named_near((model), "a", "b"), 1)) END) AS y FROM named WHERE k > 2;

-- a function
SELECT a, predict('forest', *) AS y FROM t;
-- becomes
SELECT a, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1)) AS y FROM t;

-- an expression
SELECT predict_score('linear', *) AS s FROM t;
-- becomes
SELECT CASE WHEN isfinite("+"("+"("*"("a", 1.0e0), "*"("b", -2.0e0)), 0.5e0)) THEN "+"("+"("*"("a", 1.0e0), "*"("b", -2.0e0)), 0.5e0) ELSE sqlml_linear_score_f64_native_traverse_cpu_c("a", "b") END AS s FROM t;

-- calls in calls
SELECT predict('forest', a, predict('forest', a, b)) AS y FROM t;
-- becomes
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c(a, CAST((array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c(a, b), 1))) AS DOUBLE)), 1)) AS y FROM t;
