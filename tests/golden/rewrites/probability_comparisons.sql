-- above a number
SELECT a FROM t WHERE predict_proba('linear', *, class := 1) > 0.8;
-- without the rule
SELECT a FROM t WHERE CASE WHEN isfinite("+"("+"("*"("a", 1.0e0), "*"("b", -2.0e0)), 0.5e0)) THEN "/"(1, "+"(1, exp("-"("+"("+"("*"("a", 1.0e0), "*"("b", -2.0e0)), 0.5e0))))) ELSE sqlml_linear_proba1_f64_native_traverse_cpu_once_c("a", "b") END > 0.8;
-- with it
SELECT a FROM t WHERE sqlml_linear_score_f64_native_traverse_cpu_once_c("a", "b") >= '1.386294361'::DOUBLE;

-- between two
SELECT a FROM t WHERE predict_proba('linear', *, class := 1) BETWEEN 0.2 AND 0.8;
-- without the rule
SELECT a FROM t WHERE CASE WHEN isfinite("+"("+"("*"("a", 1.0e0), "*"("b", -2.0e0)), 0.5e0)) THEN "/"(1, "+"(1, exp("-"("+"("+"("*"("a", 1.0e0), "*"("b", -2.0e0)), 0.5e0))))) ELSE sqlml_linear_proba1_f64_native_traverse_cpu_once_c("a", "b") END BETWEEN 0.2 AND 0.8;
-- with it
SELECT a FROM t WHERE sqlml_linear_score_f64_native_traverse_cpu_once_c("a", "b") BETWEEN '-1.386294361'::DOUBLE AND '1.386294361'::DOUBLE;

-- the first of two classes falls with the score
SELECT a FROM t WHERE 0.5 <= predict_proba('linear', *, class := 0);
-- without the rule
SELECT a FROM t WHERE 0.5 <= sqlml_linear_proba0_f64_native_traverse_cpu_once_c("a", "b");
-- with it
SELECT a FROM t WHERE '-0.0'::DOUBLE <= "-"(sqlml_linear_score_f64_native_traverse_cpu_once_c("a", "b"));
