CREATE VIEW "churn_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", if(is_nan(CAST(sqlml_t."tenure" AS DOUBLE)), NULL, CAST(sqlml_t."tenure" AS DOUBLE)) AS sqlml_x0, if(is_nan(CAST(sqlml_t."order" AS DOUBLE)), NULL, CAST(sqlml_t."order" AS DOUBLE)) AS sqlml_x1, CAST(sqlml_t."plan" AS VARCHAR) AS sqlml_x2 FROM "shop"."customers" AS sqlml_t
), sqlml_1 AS (
  SELECT "id", sqlml_x0, sqlml_x1, CAST(CASE sqlml_x2 WHEN 'basic' THEN 0 WHEN 'it''s' THEN 1 ELSE -1 END AS BIGINT) AS sqlml_v1 FROM sqlml_0
), sqlml_2 AS (
  SELECT "id", sqlml_x0, sqlml_x1, sqlml_v1, ((CAST(CASE WHEN sqlml_v1 = 0 THEN 1 ELSE 0 END AS DOUBLE) * -1.6303676445651103e0) + (CAST(CASE WHEN sqlml_v1 = 1 THEN 1 ELSE 0 END AS DOUBLE) * 1.63036764456511e0) + (sqlml_x0 * 0.005859375e0) + (sqlml_x1 * -0.009765625e0) + -0.166015625e0) AS sqlml_v2 FROM sqlml_1
), sqlml_3 AS (
  SELECT "id", sqlml_v2, CASE WHEN sqlml_v2 < -709.782712893384e0 THEN 0.0e0 ELSE (CAST(1 AS DOUBLE) / (1 + CASE WHEN (-sqlml_v2) > 709.782712893384e0 THEN infinity() WHEN (-sqlml_v2) < -745.1332191019411e0 THEN 0.0e0 ELSE EXP((-sqlml_v2)) END)) END AS sqlml_v3, CASE WHEN sqlml_v1 < 0 OR (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > 1.7976931348623157e+308) OR (sqlml_x1 IS NULL) OR (ABS(sqlml_x1) > 1.7976931348623157e+308) THEN 1 ELSE 0 END AS sqlml_v4 FROM sqlml_2
)
SELECT "id", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE CASE CAST(CAST(CASE WHEN ((sqlml_v2 > 0.0e0) AND NOT (sqlml_v2 IS NULL)) THEN 1 ELSE 0 END AS BIGINT) AS DOUBLE) WHEN 0 THEN 'no' WHEN 1 THEN 'yes' END END AS "predicted_label", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE (1.0e0 - sqlml_v3) END AS "probability_no", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE sqlml_v3 END AS "probability_yes", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE sqlml_v2 END AS "score"
FROM sqlml_3;

CREATE VIEW "trees_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", if(is_nan(CAST(sqlml_t."tenure" AS DOUBLE)), NULL, CAST(sqlml_t."tenure" AS DOUBLE)) AS sqlml_x0 FROM "shop"."customers" AS sqlml_t
), sqlml_1 AS (
  SELECT "id", CASE WHEN sqlml_x0 < 19.999999046325684e0 THEN CASE WHEN sqlml_x0 < 11.999999523162842e0 THEN -1.8000000715255737e0 ELSE -0.48000001907348633e0 END ELSE CASE WHEN sqlml_x0 < 27.999999046325684e0 THEN 0.48000001907348633e0 ELSE 1.8000000715255737e0 END END AS sqlml_v1, CASE WHEN sqlml_x0 < 17.999999046325684e0 THEN CASE WHEN sqlml_x0 < 9.999999523162842e0 THEN -1.4250000715255737e0 ELSE -0.5256000757217407e0 END ELSE CASE WHEN sqlml_x0 < 25.999999046325684e0 THEN 0.18240004777908325e0 ELSE 1.283250093460083e0 END END AS sqlml_v2 FROM sqlml_0
)
SELECT "id", CAST(CAST(CAST((CAST(CAST((9.5e0 + sqlml_v1) AS REAL) AS DOUBLE) + sqlml_v2) AS REAL) AS DOUBLE) AS DOUBLE) AS "predicted_label", CAST(CAST(CAST((CAST(CAST((9.5e0 + sqlml_v1) AS REAL) AS DOUBLE) + sqlml_v2) AS REAL) AS DOUBLE) AS DOUBLE) AS "score"
FROM sqlml_1;

CREATE VIEW "rush_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", (CAST(date_diff('second', timestamp '1970-01-01 00:00:00', date_trunc('second', CAST(sqlml_t."at" AS timestamp(6)))) AS double) * 1000000e0 + CAST(substr(CAST(CAST(sqlml_t."at" AS timestamp(6)) AS varchar), -6) AS double)) AS sqlml_x0 FROM "shop"."customers" AS sqlml_t
), sqlml_1 AS (
  SELECT "id", sqlml_x0, (sqlml_x0 - (FLOOR((CAST(sqlml_x0 AS DOUBLE) / 86400000000.0e0)) * 86400000000.0e0)) AS sqlml_v1 FROM sqlml_0
), sqlml_2 AS (
  SELECT "id", sqlml_x0, CASE WHEN sqlml_v1 < 0 THEN (sqlml_v1 + 86400000000.0e0) ELSE sqlml_v1 END AS sqlml_v2 FROM sqlml_1
), sqlml_3 AS (
  SELECT "id", sqlml_x0, FLOOR((CAST(sqlml_v2 AS DOUBLE) / 3600000000.0e0)) AS sqlml_v3 FROM sqlml_2
), sqlml_4 AS (
  SELECT "id", sqlml_x0, sqlml_v3, ((sqlml_v3 * 0.04577581175941302e0) + -0.5171010289837733e0) AS sqlml_v4 FROM sqlml_3
), sqlml_5 AS (
  SELECT "id", sqlml_v4, CASE WHEN sqlml_v4 < -709.782712893384e0 THEN 0.0e0 ELSE (CAST(1 AS DOUBLE) / (1 + CASE WHEN (-sqlml_v4) > 709.782712893384e0 THEN infinity() WHEN (-sqlml_v4) < -745.1332191019411e0 THEN 0.0e0 ELSE EXP((-sqlml_v4)) END)) END AS sqlml_v5, CASE WHEN (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > 1.7976931348623157e+308) OR (ABS(sqlml_x0) > 3.6893488147419103e+19) OR (sqlml_v3 IS NULL) OR (ABS(sqlml_v3) > 1.7976931348623157e+308) THEN 1 ELSE 0 END AS sqlml_v6 FROM sqlml_4
)
SELECT "id", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE CASE CAST(CAST(CASE WHEN ((sqlml_v4 > 0.0e0) AND NOT (sqlml_v4 IS NULL)) THEN 1 ELSE 0 END AS BIGINT) AS DOUBLE) WHEN 0 THEN FALSE WHEN 1 THEN TRUE END END AS "predicted_label", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE (1.0e0 - sqlml_v5) END AS "probability_false", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE sqlml_v5 END AS "probability_true", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE sqlml_v4 END AS "score"
FROM sqlml_5;
