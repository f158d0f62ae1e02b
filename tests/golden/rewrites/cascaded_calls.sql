-- a label
SELECT predict('forest', *, approximate := true) AS y FROM t;
-- without the rule
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1)) AS y FROM t;
-- with it
SELECT coalesce(CASE WHEN ("a" BETWEEN '-3.4028235677973362e+38'::DOUBLE AND '3.4028235677973362e+38'::DOUBLE OR "a" IS NULL OR isnan("a")) THEN CASE WHEN "a" BETWEEN '0.12500000745058062'::DOUBLE AND 'inf'::DOUBLE THEN CAST(NULL AS BIGINT) ELSE CASE WHEN "a" BETWEEN '-0.12499999627470969'::DOUBLE AND 'inf'::DOUBLE THEN '0'::BIGINT ELSE CAST(NULL AS BIGINT) END END ELSE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_small_forest_label_f64_native_traverse_cpu_c("a"), 1)) END, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1))) AS y FROM t;

-- a probability is exact
SELECT predict('forest', *, approximate := true) AS y, predict_proba('forest', *, approximate := true, class := 1) AS p FROM t;
-- without the rule
SELECT array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_c("a", "b"), 'label'), 1)) AS y, struct_extract(sqlml_forest_label_proba1_f64_native_traverse_cpu_c("a", "b"), 'proba1') AS p FROM t;
-- with it
SELECT coalesce(CASE WHEN ("a" BETWEEN '-3.4028235677973362e+38'::DOUBLE AND '3.4028235677973362e+38'::DOUBLE OR "a" IS NULL OR isnan("a")) THEN CASE WHEN "a" BETWEEN '0.12500000745058062'::DOUBLE AND 'inf'::DOUBLE THEN CAST(NULL AS BIGINT) ELSE CASE WHEN "a" BETWEEN '-0.12499999627470969'::DOUBLE AND 'inf'::DOUBLE THEN '0'::BIGINT ELSE CAST(NULL AS BIGINT) END END ELSE array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_small_forest_label_f64_native_traverse_cpu_c("a"), 1)) END, array_extract((list_value('0'::BIGINT, '1'::BIGINT)), "+"(sqlml_forest_label_f64_native_traverse_cpu_c("a", "b"), 1))) AS y, sqlml_forest_proba1_f64_native_traverse_cpu_c("a", "b") AS p FROM t;
