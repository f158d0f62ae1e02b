CREATE VIEW "churn_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", nullif(CAST(sqlml_t."tenure" AS double precision), 'NaN'::float8) AS sqlml_x0, nullif(CAST(sqlml_t."order" AS double precision), 'NaN'::float8) AS sqlml_x1, collate(CAST(sqlml_t."plan" AS varchar(65535)), 'case_sensitive') AS sqlml_x2 FROM "shop"."customers" AS sqlml_t
), sqlml_1 AS (
  SELECT "id", sqlml_x0, sqlml_x1, CAST(CASE sqlml_x2 WHEN 'basic' THEN 0 WHEN 'it\'s' THEN 1 ELSE -1 END AS BIGINT) AS sqlml_v1 FROM sqlml_0
), sqlml_2 AS (
  SELECT "id", sqlml_x0, sqlml_x1, sqlml_v1, ((CAST(CASE WHEN sqlml_v1 = 0 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '-1.6303676445651103'::float8) + (CAST(CASE WHEN sqlml_v1 = 1 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '1.63036764456511'::float8) + (CASE WHEN ABS(sqlml_x0) < '8.45e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x0 * '0.005859375'::float8 END) + (CASE WHEN ABS(sqlml_x1) < '5.04e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x1 * '-0.009765625'::float8 END) + '-0.166015625'::float8) AS sqlml_v2 FROM sqlml_1
), sqlml_3 AS (
  SELECT "id", sqlml_v2, CASE WHEN sqlml_v2 < '-709.782712893384'::float8 THEN '0.0'::float8 ELSE (CAST(1 AS DOUBLE PRECISION) / (1 + CASE WHEN (-sqlml_v2) > '709.782712893384'::float8 THEN 'infinity'::float8 WHEN (-sqlml_v2) < '-745.1332191019411'::float8 THEN '0.0'::float8 ELSE EXP((-sqlml_v2)) END)) END AS sqlml_v3, CASE WHEN sqlml_v1 < 0 OR (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (sqlml_x1 IS NULL) OR (ABS(sqlml_x1) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 OR ABS(sqlml_x1) > '1e+150'::float8 THEN 1 ELSE 0 END AS sqlml_v4 FROM sqlml_2
)
SELECT "id", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE CASE CAST(CAST(CASE WHEN ((sqlml_v2 > '0.0'::float8) AND NOT (sqlml_v2 IS NULL)) THEN 1 ELSE 0 END AS BIGINT) AS DOUBLE PRECISION) WHEN 0 THEN 'no' WHEN 1 THEN 'yes' END END AS "predicted_label", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE ('1.0'::float8 - sqlml_v3) END AS "probability_no", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE sqlml_v3 END AS "probability_yes", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE sqlml_v2 END AS "score"
FROM sqlml_3;

CREATE VIEW "trees_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", nullif(CAST(sqlml_t."tenure" AS double precision), 'NaN'::float8) AS sqlml_x0 FROM "shop"."customers" AS sqlml_t
), sqlml_1 AS (
  SELECT "id", CASE WHEN sqlml_x0 < '19.999999046325684'::float8 THEN CASE WHEN sqlml_x0 < '11.999999523162842'::float8 THEN '-1.8000000715255737'::float8 ELSE '-0.48000001907348633'::float8 END ELSE CASE WHEN sqlml_x0 < '27.999999046325684'::float8 THEN '0.48000001907348633'::float8 ELSE '1.8000000715255737'::float8 END END AS sqlml_v1, CASE WHEN sqlml_x0 < '17.999999046325684'::float8 THEN CASE WHEN sqlml_x0 < '9.999999523162842'::float8 THEN '-1.4250000715255737'::float8 ELSE '-0.5256000757217407'::float8 END ELSE CASE WHEN sqlml_x0 < '25.999999046325684'::float8 THEN '0.18240004777908325'::float8 ELSE '1.283250093460083'::float8 END END AS sqlml_v2 FROM sqlml_0
)
SELECT "id", CAST(CAST(CAST((CAST(CAST(('9.5'::float8 + sqlml_v1) AS REAL) AS DOUBLE PRECISION) + sqlml_v2) AS REAL) AS DOUBLE PRECISION) AS DOUBLE PRECISION) AS "predicted_label", CAST(CAST(CAST((CAST(CAST(('9.5'::float8 + sqlml_v1) AS REAL) AS DOUBLE PRECISION) + sqlml_v2) AS REAL) AS DOUBLE PRECISION) AS DOUBLE PRECISION) AS "score"
FROM sqlml_1;

CREATE VIEW "rush_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", CAST(datediff(microsecond, timestamp '1970-01-01', CAST(sqlml_t."at" AS timestamp)) AS double precision) AS sqlml_x0 FROM "shop"."customers" AS sqlml_t
), sqlml_1 AS (
  SELECT "id", sqlml_x0, ((CASE WHEN ABS(sqlml_x0) > '4.4942328371557893e+307'::float8 THEN sqlml_x0 * 'infinity'::float8 ELSE sqlml_x0 END) - (CASE WHEN ABS(FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END))) > '5.201658376337718e+296'::float8 THEN FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * 'infinity'::float8 ELSE FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * '86400000000.0'::float8 END)) AS sqlml_v1 FROM sqlml_0
), sqlml_2 AS (
  SELECT "id", sqlml_x0, CASE WHEN sqlml_v1 < 0 THEN (sqlml_v1 + '86400000000.0'::float8) ELSE sqlml_v1 END AS sqlml_v2 FROM sqlml_1
), sqlml_3 AS (
  SELECT "id", sqlml_x0, FLOOR((CASE WHEN ABS(sqlml_v2) < '1.778636325e-314'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v2 AS DOUBLE PRECISION) / '3600000000.0'::float8 END)) AS sqlml_v3 FROM sqlml_2
), sqlml_4 AS (
  SELECT "id", sqlml_x0, sqlml_v3, ((CASE WHEN ABS(sqlml_v3) < '1.1e-322'::float8 THEN '0.0'::float8 ELSE sqlml_v3 * '0.04577581175941302'::float8 END) + '-0.5171010289837733'::float8) AS sqlml_v4 FROM sqlml_3
), sqlml_5 AS (
  SELECT "id", sqlml_v4, CASE WHEN sqlml_v4 < '-709.782712893384'::float8 THEN '0.0'::float8 ELSE (CAST(1 AS DOUBLE PRECISION) / (1 + CASE WHEN (-sqlml_v4) > '709.782712893384'::float8 THEN 'infinity'::float8 WHEN (-sqlml_v4) < '-745.1332191019411'::float8 THEN '0.0'::float8 ELSE EXP((-sqlml_v4)) END)) END AS sqlml_v5, CASE WHEN (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (ABS(sqlml_x0) > '3.6893488147419103e+19'::float8) OR (sqlml_v3 IS NULL) OR (ABS(sqlml_v3) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 THEN 1 ELSE 0 END AS sqlml_v6 FROM sqlml_4
)
SELECT "id", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE CASE CAST(CAST(CASE WHEN ((sqlml_v4 > '0.0'::float8) AND NOT (sqlml_v4 IS NULL)) THEN 1 ELSE 0 END AS BIGINT) AS DOUBLE PRECISION) WHEN 0 THEN FALSE WHEN 1 THEN TRUE END END AS "predicted_label", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE ('1.0'::float8 - sqlml_v5) END AS "probability_false", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE sqlml_v5 END AS "probability_true", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE sqlml_v4 END AS "score"
FROM sqlml_5;
