-- the best rows
SELECT k FROM t LEFT JOIN d ON t.k = d.id WHERE k > 2 ORDER BY predict_proba('forest', a := t.a, b := d.c, class := 1, approximate := true) DESC LIMIT 5;
-- without the rule
SELECT k FROM t LEFT JOIN d ON t.k = d.id WHERE k > 2 ORDER BY sqlml_forest_proba1_f64_native_traverse_cpu_c(t.a, d.c) DESC LIMIT 5;
-- with it
SELECT k FROM (SELECT * FROM t AS t WHERE (k > 2) ORDER BY CASE WHEN isfinite("+"("*"(t.a, 0.021395976217525387e0), 0.4348529026635045e0)) THEN "+"("*"(t.a, 0.021395976217525387e0), 0.4348529026635045e0) ELSE sqlml_small_forest_score_f64_native_traverse_cpu_c(t.a) END DESC NULLS LAST LIMIT (SELECT greatest(10, CAST(ceil(0.1 * count(*)) AS BIGINT)) FROM t AS t WHERE (k > 2))) AS t LEFT JOIN d ON t.k = d.id WHERE k > 2 ORDER BY sqlml_forest_proba1_f64_native_traverse_cpu_c(t.a, d.c) DESC LIMIT 5;
