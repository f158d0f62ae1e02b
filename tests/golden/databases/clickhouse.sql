CREATE VIEW "churn_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", if(isNaN(CAST(sqlml_t."tenure" AS Nullable(Float64))), NULL, CAST(sqlml_t."tenure" AS Nullable(Float64))) AS sqlml_x0, if(isNaN(CAST(sqlml_t."order" AS Nullable(Float64))), NULL, CAST(sqlml_t."order" AS Nullable(Float64))) AS sqlml_x1, CAST(sqlml_t."plan" AS Nullable(String)) AS sqlml_x2 FROM "shop"."customers" AS sqlml_t LIMIT 18446744073709551615 BY ''
), sqlml_1 AS (
  SELECT "id", sqlml_x0, sqlml_x1, CAST(CASE sqlml_x2 WHEN 'basic' THEN 0 WHEN 'it''s' THEN 1 ELSE -1 END AS Nullable(Int64)) AS sqlml_v1 FROM sqlml_0 LIMIT 18446744073709551615 BY ''
), sqlml_2 AS (
  SELECT "id", sqlml_x0, sqlml_x1, sqlml_v1, ((CAST(CASE WHEN sqlml_v1 = 0 THEN 1 ELSE 0 END AS Nullable(Float64)) * -1.6303676445651103) + (CAST(CASE WHEN sqlml_v1 = 1 THEN 1 ELSE 0 END AS Nullable(Float64)) * 1.63036764456511) + (sqlml_x0 * 0.005859375) + (sqlml_x1 * -0.009765625) + -0.166015625) AS sqlml_v2 FROM sqlml_1 LIMIT 18446744073709551615 BY ''
), sqlml_3 AS (
  SELECT "id", sqlml_v2, CASE WHEN sqlml_v2 < -709.782712893384 THEN 0.0 ELSE (1 / (1 + CASE WHEN (-sqlml_v2) > 709.782712893384 THEN inf WHEN (-sqlml_v2) < -745.1332191019411 THEN 0.0 ELSE EXP((-sqlml_v2)) END)) END AS sqlml_v3, CASE WHEN sqlml_v1 < 0 OR (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > 1.7976931348623157e+308) OR (sqlml_x1 IS NULL) OR (ABS(sqlml_x1) > 1.7976931348623157e+308) THEN 1 ELSE 0 END AS sqlml_v4 FROM sqlml_2 LIMIT 18446744073709551615 BY ''
)
SELECT "id", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE CASE CAST(CAST(CASE WHEN ((sqlml_v2 > 0.0) AND NOT (sqlml_v2 IS NULL)) THEN 1 ELSE 0 END AS Nullable(Int64)) AS Nullable(Float64)) WHEN 0 THEN 'no' WHEN 1 THEN 'yes' END END AS "predicted_label", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE (1.0 - sqlml_v3) END AS "probability_no", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE sqlml_v3 END AS "probability_yes", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE sqlml_v2 END AS "score"
FROM sqlml_3;

CREATE VIEW "trees_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", if(isNaN(CAST(sqlml_t."tenure" AS Nullable(Float64))), NULL, CAST(sqlml_t."tenure" AS Nullable(Float64))) AS sqlml_x0 FROM "shop"."customers" AS sqlml_t LIMIT 18446744073709551615 BY ''
), sqlml_1 AS (
  SELECT "id", CASE WHEN sqlml_x0 < 19.999999046325684 THEN CASE WHEN sqlml_x0 < 11.999999523162842 THEN -1.8000000715255737 ELSE -0.48000001907348633 END ELSE CASE WHEN sqlml_x0 < 27.999999046325684 THEN 0.48000001907348633 ELSE 1.8000000715255737 END END AS sqlml_v1, CASE WHEN sqlml_x0 < 17.999999046325684 THEN CASE WHEN sqlml_x0 < 9.999999523162842 THEN -1.4250000715255737 ELSE -0.5256000757217407 END ELSE CASE WHEN sqlml_x0 < 25.999999046325684 THEN 0.18240004777908325 ELSE 1.283250093460083 END END AS sqlml_v2 FROM sqlml_0 LIMIT 18446744073709551615 BY ''
)
SELECT "id", CAST(CAST(CAST((CAST(CAST((9.5 + sqlml_v1) AS Nullable(Float32)) AS Nullable(Float64)) + sqlml_v2) AS Nullable(Float32)) AS Nullable(Float64)) AS Nullable(Float64)) AS "predicted_label", CAST(CAST(CAST((CAST(CAST((9.5 + sqlml_v1) AS Nullable(Float32)) AS Nullable(Float64)) + sqlml_v2) AS Nullable(Float32)) AS Nullable(Float64)) AS Nullable(Float64)) AS "score"
FROM sqlml_1;
