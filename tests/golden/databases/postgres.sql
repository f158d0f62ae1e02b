CREATE VIEW "churn_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", nullif(CAST(sqlml_t."tenure" AS double precision), 'NaN'::float8) AS sqlml_x0, nullif(CAST(sqlml_t."order" AS double precision), 'NaN'::float8) AS sqlml_x1, CAST(sqlml_t."plan" AS text) COLLATE "C" AS sqlml_x2 FROM "shop"."customers" AS sqlml_t OFFSET 0
), sqlml_1 AS (
  SELECT "id", sqlml_x0, sqlml_x1, CAST(CASE sqlml_x2 WHEN 'basic' THEN 0 WHEN 'it''s' THEN 1 ELSE -1 END AS BIGINT) AS sqlml_v1 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT "id", sqlml_x0, sqlml_x1, sqlml_v1, ((CAST(CASE WHEN sqlml_v1 = 0 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '-1.6303676445651103'::float8) + (CAST(CASE WHEN sqlml_v1 = 1 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '1.63036764456511'::float8) + (CASE WHEN ABS(sqlml_x0) < '8.45e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x0 * '0.005859375'::float8 END) + (CASE WHEN ABS(sqlml_x1) < '5.04e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x1 * '-0.009765625'::float8 END) + '-0.166015625'::float8) AS sqlml_v2 FROM sqlml_1 OFFSET 0
), sqlml_3 AS (
  SELECT "id", sqlml_v2, CASE WHEN sqlml_v2 < '-709.782712893384'::float8 THEN '0.0'::float8 ELSE (CAST(1 AS DOUBLE PRECISION) / (1 + CASE WHEN (-sqlml_v2) > '709.782712893384'::float8 THEN 'infinity'::float8 WHEN (-sqlml_v2) < '-745.1332191019411'::float8 THEN '0.0'::float8 ELSE EXP((-sqlml_v2)) END)) END AS sqlml_v3, CASE WHEN sqlml_v1 < 0 OR (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (sqlml_x1 IS NULL) OR (ABS(sqlml_x1) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 OR ABS(sqlml_x1) > '1e+150'::float8 THEN 1 ELSE 0 END AS sqlml_v4 FROM sqlml_2 OFFSET 0
)
SELECT "id", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE CASE CAST(CAST(CASE WHEN ((sqlml_v2 > '0.0'::float8) AND NOT (sqlml_v2 IS NULL)) THEN 1 ELSE 0 END AS BIGINT) AS DOUBLE PRECISION) WHEN 0 THEN 'no' WHEN 1 THEN 'yes' END END AS "predicted_label", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE ('1.0'::float8 - sqlml_v3) END AS "probability_no", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE sqlml_v3 END AS "probability_yes", CASE WHEN sqlml_v4 = 1 THEN NULL ELSE sqlml_v2 END AS "score"
FROM sqlml_3;

CREATE OR REPLACE FUNCTION "churn"("tenure" double precision, "order" double precision, "plan" text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT nullif(CAST("tenure" AS double precision), 'NaN'::float8) AS sqlml_x0, nullif(CAST("order" AS double precision), 'NaN'::float8) AS sqlml_x1, CAST("plan" AS text) COLLATE "C" AS sqlml_x2 OFFSET 0
), sqlml_1 AS (
  SELECT sqlml_x0, sqlml_x1, CAST(CASE sqlml_x2 WHEN 'basic' THEN 0 WHEN 'it''s' THEN 1 ELSE -1 END AS BIGINT) AS sqlml_v1, (sqlml_x0 - '19.0'::float8) AS sqlml_v2, (sqlml_x1 - '20.0'::float8) AS sqlml_v3 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT sqlml_x0, sqlml_x1, sqlml_v1, ((CAST(CASE WHEN sqlml_v1 = 0 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '-1.6303676445651103'::float8) + (CAST(CASE WHEN sqlml_v1 = 1 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '1.63036764456511'::float8) + (CASE WHEN ABS((CASE WHEN ABS(sqlml_v2) < '4e-323'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v2 AS DOUBLE PRECISION) / '8.0'::float8 END)) < '1.04e-322'::float8 THEN '0.0'::float8 ELSE (CASE WHEN ABS(sqlml_v2) < '4e-323'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v2 AS DOUBLE PRECISION) / '8.0'::float8 END) * '0.046875'::float8 END) + (CASE WHEN ABS((CASE WHEN ABS(sqlml_v3) < '8e-323'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v3 AS DOUBLE PRECISION) / '16.0'::float8 END)) > '1.1505236063118818e+308'::float8 THEN (CASE WHEN ABS(sqlml_v3) < '8e-323'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v3 AS DOUBLE PRECISION) / '16.0'::float8 END) * (-'infinity'::float8) WHEN ABS((CASE WHEN ABS(sqlml_v3) < '8e-323'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v3 AS DOUBLE PRECISION) / '16.0'::float8 END)) < '3e-323'::float8 THEN '0.0'::float8 ELSE (CASE WHEN ABS(sqlml_v3) < '8e-323'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v3 AS DOUBLE PRECISION) / '16.0'::float8 END) * '-0.15625'::float8 END) + '-0.25'::float8) AS sqlml_v4 FROM sqlml_1 OFFSET 0
)
SELECT CASE WHEN sqlml_v1 < 0 OR (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (sqlml_x1 IS NULL) OR (ABS(sqlml_x1) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 OR ABS(sqlml_x1) > '1e+150'::float8 THEN NULL ELSE CASE CAST(CASE WHEN ((sqlml_v4 > '0.0'::float8) AND NOT (sqlml_v4 IS NULL)) THEN 1 ELSE 0 END AS BIGINT) WHEN 0 THEN 'no' WHEN 1 THEN 'yes' END END FROM sqlml_2
$model$;

CREATE OR REPLACE FUNCTION "churn_probability_no"("tenure" double precision, "order" double precision, "plan" text) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT nullif(CAST("tenure" AS double precision), 'NaN'::float8) AS sqlml_x0, nullif(CAST("order" AS double precision), 'NaN'::float8) AS sqlml_x1, CAST("plan" AS text) COLLATE "C" AS sqlml_x2 OFFSET 0
), sqlml_1 AS (
  SELECT sqlml_x0, sqlml_x1, CAST(CASE sqlml_x2 WHEN 'basic' THEN 0 WHEN 'it''s' THEN 1 ELSE -1 END AS BIGINT) AS sqlml_v1 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT sqlml_x0, sqlml_x1, sqlml_v1, ((CAST(CASE WHEN sqlml_v1 = 0 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '-1.6303676445651103'::float8) + (CAST(CASE WHEN sqlml_v1 = 1 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '1.63036764456511'::float8) + (CASE WHEN ABS(sqlml_x0) < '8.45e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x0 * '0.005859375'::float8 END) + (CASE WHEN ABS(sqlml_x1) < '5.04e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x1 * '-0.009765625'::float8 END) + '-0.166015625'::float8) AS sqlml_v2 FROM sqlml_1 OFFSET 0
)
SELECT CASE WHEN sqlml_v1 < 0 OR (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (sqlml_x1 IS NULL) OR (ABS(sqlml_x1) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 OR ABS(sqlml_x1) > '1e+150'::float8 THEN NULL ELSE ('1.0'::float8 - CASE WHEN sqlml_v2 < '-709.782712893384'::float8 THEN '0.0'::float8 ELSE (CAST(1 AS DOUBLE PRECISION) / (1 + CASE WHEN (-sqlml_v2) > '709.782712893384'::float8 THEN 'infinity'::float8 WHEN (-sqlml_v2) < '-745.1332191019411'::float8 THEN '0.0'::float8 ELSE EXP((-sqlml_v2)) END)) END) END FROM sqlml_2
$model$;

CREATE OR REPLACE FUNCTION "churn_probability_yes"("tenure" double precision, "order" double precision, "plan" text) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT nullif(CAST("tenure" AS double precision), 'NaN'::float8) AS sqlml_x0, nullif(CAST("order" AS double precision), 'NaN'::float8) AS sqlml_x1, CAST("plan" AS text) COLLATE "C" AS sqlml_x2 OFFSET 0
), sqlml_1 AS (
  SELECT sqlml_x0, sqlml_x1, CAST(CASE sqlml_x2 WHEN 'basic' THEN 0 WHEN 'it''s' THEN 1 ELSE -1 END AS BIGINT) AS sqlml_v1 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT sqlml_x0, sqlml_x1, sqlml_v1, ((CAST(CASE WHEN sqlml_v1 = 0 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '-1.6303676445651103'::float8) + (CAST(CASE WHEN sqlml_v1 = 1 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '1.63036764456511'::float8) + (CASE WHEN ABS(sqlml_x0) < '8.45e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x0 * '0.005859375'::float8 END) + (CASE WHEN ABS(sqlml_x1) < '5.04e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x1 * '-0.009765625'::float8 END) + '-0.166015625'::float8) AS sqlml_v2 FROM sqlml_1 OFFSET 0
)
SELECT CASE WHEN sqlml_v1 < 0 OR (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (sqlml_x1 IS NULL) OR (ABS(sqlml_x1) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 OR ABS(sqlml_x1) > '1e+150'::float8 THEN NULL ELSE CASE WHEN sqlml_v2 < '-709.782712893384'::float8 THEN '0.0'::float8 ELSE (CAST(1 AS DOUBLE PRECISION) / (1 + CASE WHEN (-sqlml_v2) > '709.782712893384'::float8 THEN 'infinity'::float8 WHEN (-sqlml_v2) < '-745.1332191019411'::float8 THEN '0.0'::float8 ELSE EXP((-sqlml_v2)) END)) END END FROM sqlml_2
$model$;

CREATE OR REPLACE FUNCTION "churn_score"("tenure" double precision, "order" double precision, "plan" text) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT nullif(CAST("tenure" AS double precision), 'NaN'::float8) AS sqlml_x0, nullif(CAST("order" AS double precision), 'NaN'::float8) AS sqlml_x1, CAST("plan" AS text) COLLATE "C" AS sqlml_x2 OFFSET 0
), sqlml_1 AS (
  SELECT sqlml_x0, sqlml_x1, CAST(CASE sqlml_x2 WHEN 'basic' THEN 0 WHEN 'it''s' THEN 1 ELSE -1 END AS BIGINT) AS sqlml_v1 FROM sqlml_0 OFFSET 0
)
SELECT CASE WHEN sqlml_v1 < 0 OR (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (sqlml_x1 IS NULL) OR (ABS(sqlml_x1) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 OR ABS(sqlml_x1) > '1e+150'::float8 THEN NULL ELSE ((CAST(CASE WHEN sqlml_v1 = 0 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '-1.6303676445651103'::float8) + (CAST(CASE WHEN sqlml_v1 = 1 THEN 1 ELSE 0 END AS DOUBLE PRECISION) * '1.63036764456511'::float8) + (CASE WHEN ABS(sqlml_x0) < '8.45e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x0 * '0.005859375'::float8 END) + (CASE WHEN ABS(sqlml_x1) < '5.04e-322'::float8 THEN '0.0'::float8 ELSE sqlml_x1 * '-0.009765625'::float8 END) + '-0.166015625'::float8) END FROM sqlml_1
$model$;

CREATE VIEW "trees_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", nullif(CAST(sqlml_t."tenure" AS double precision), 'NaN'::float8) AS sqlml_x0 FROM "shop"."customers" AS sqlml_t OFFSET 0
), sqlml_1 AS (
  SELECT "id", CASE WHEN sqlml_x0 < '19.999999046325684'::float8 THEN CASE WHEN sqlml_x0 < '11.999999523162842'::float8 THEN '-1.8000000715255737'::float8 ELSE '-0.48000001907348633'::float8 END ELSE CASE WHEN sqlml_x0 < '27.999999046325684'::float8 THEN '0.48000001907348633'::float8 ELSE '1.8000000715255737'::float8 END END AS sqlml_v1, CASE WHEN sqlml_x0 < '17.999999046325684'::float8 THEN CASE WHEN sqlml_x0 < '9.999999523162842'::float8 THEN '-1.4250000715255737'::float8 ELSE '-0.5256000757217407'::float8 END ELSE CASE WHEN sqlml_x0 < '25.999999046325684'::float8 THEN '0.18240004777908325'::float8 ELSE '1.283250093460083'::float8 END END AS sqlml_v2 FROM sqlml_0 OFFSET 0
)
SELECT "id", CAST(CAST(CAST((CAST(CAST(('9.5'::float8 + sqlml_v1) AS REAL) AS DOUBLE PRECISION) + sqlml_v2) AS REAL) AS DOUBLE PRECISION) AS DOUBLE PRECISION) AS "predicted_label", CAST(CAST(CAST((CAST(CAST(('9.5'::float8 + sqlml_v1) AS REAL) AS DOUBLE PRECISION) + sqlml_v2) AS REAL) AS DOUBLE PRECISION) AS DOUBLE PRECISION) AS "score"
FROM sqlml_1;

CREATE OR REPLACE FUNCTION "trees"("tenure" double precision, "order" double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT nullif(CAST("tenure" AS double precision), 'NaN'::float8) AS sqlml_x0 OFFSET 0
), sqlml_1 AS (
  SELECT CASE WHEN sqlml_x0 < '19.999999046325684'::float8 THEN CASE WHEN sqlml_x0 < '11.999999523162842'::float8 THEN '-1.8000000715255737'::float8 ELSE '-0.48000001907348633'::float8 END ELSE CASE WHEN sqlml_x0 < '27.999999046325684'::float8 THEN '0.48000001907348633'::float8 ELSE '1.8000000715255737'::float8 END END AS sqlml_v1, CASE WHEN sqlml_x0 < '17.999999046325684'::float8 THEN CASE WHEN sqlml_x0 < '9.999999523162842'::float8 THEN '-1.4250000715255737'::float8 ELSE '-0.5256000757217407'::float8 END ELSE CASE WHEN sqlml_x0 < '25.999999046325684'::float8 THEN '0.18240004777908325'::float8 ELSE '1.283250093460083'::float8 END END AS sqlml_v2 FROM sqlml_0 OFFSET 0
)
SELECT CAST(CAST((CAST(CAST(('9.5'::float8 + sqlml_v1) AS REAL) AS DOUBLE PRECISION) + sqlml_v2) AS REAL) AS DOUBLE PRECISION) FROM sqlml_1
$model$;

CREATE OR REPLACE FUNCTION "trees_score"("tenure" double precision, "order" double precision) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT nullif(CAST("tenure" AS double precision), 'NaN'::float8) AS sqlml_x0 OFFSET 0
), sqlml_1 AS (
  SELECT CASE WHEN sqlml_x0 < '19.999999046325684'::float8 THEN CASE WHEN sqlml_x0 < '11.999999523162842'::float8 THEN '-1.8000000715255737'::float8 ELSE '-0.48000001907348633'::float8 END ELSE CASE WHEN sqlml_x0 < '27.999999046325684'::float8 THEN '0.48000001907348633'::float8 ELSE '1.8000000715255737'::float8 END END AS sqlml_v1, CASE WHEN sqlml_x0 < '17.999999046325684'::float8 THEN CASE WHEN sqlml_x0 < '9.999999523162842'::float8 THEN '-1.4250000715255737'::float8 ELSE '-0.5256000757217407'::float8 END ELSE CASE WHEN sqlml_x0 < '25.999999046325684'::float8 THEN '0.18240004777908325'::float8 ELSE '1.283250093460083'::float8 END END AS sqlml_v2 FROM sqlml_0 OFFSET 0
)
SELECT CAST(CAST((CAST(CAST(('9.5'::float8 + sqlml_v1) AS REAL) AS DOUBLE PRECISION) + sqlml_v2) AS REAL) AS DOUBLE PRECISION) FROM sqlml_1
$model$;

CREATE TABLE "trees_nodes" (ensemble integer, tree integer, part integer, target integer, feature integer[], threshold double precision[], value double precision[], next integer[], PRIMARY KEY (ensemble, tree, part));

INSERT INTO "trees_nodes" VALUES
(0, -1, 0, 0, '{1,1,1}', '{0.0,0.0,0.0}', '{9.5,9.5,9.5,9.5}', '{-1,-1,-1,-1}'),
(0, 0, 0, 0, '{1,1,1}', '{19.999999046325684,11.999999523162842,27.999999046325684}', '{-1.8000000715255737,-0.48000001907348633,0.48000001907348633,1.8000000715255737}', '{-1,-1,-1,-1}'),
(0, 1, 0, 0, '{1,1,1}', '{17.999999046325684,9.999999523162842,25.999999046325684}', '{-1.4250000715255737,-0.5256000757217407,0.18240004777908325,1.283250093460083}', '{-1,-1,-1,-1}');

ANALYZE "trees_nodes";

CREATE VIEW "trees_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."tenure" AS "tenure", nullif(CAST(sqlml_t."tenure" AS double precision), 'NaN'::float8) AS sqlml_x0 FROM "customers" AS sqlml_t OFFSET 0
), sqlml_1 AS (
  SELECT "tenure", (SELECT ARRAY[CAST(sum((p1.value[s1.slot])::real ORDER BY p1.tree) AS float8)] FROM (SELECT ARRAY[coalesce(sqlml_x0, 'NaN'::float8)]::float8[] AS x OFFSET 0) AS r CROSS JOIN "trees_nodes" AS p1 CROSS JOIN LATERAL (SELECT CASE WHEN r.x[p1.feature[1]] < p1.threshold[1] THEN CASE WHEN r.x[p1.feature[2]] < p1.threshold[2] THEN 1 ELSE 2 END ELSE CASE WHEN r.x[p1.feature[3]] < p1.threshold[3] THEN 3 ELSE 4 END END AS slot OFFSET 0) AS s1 WHERE p1.ensemble = 0 AND p1.part = 0) AS sqlml_v1 FROM sqlml_0 OFFSET 0
)
SELECT "tenure", CAST(sqlml_v1[1] AS DOUBLE PRECISION) AS "predicted_label", CAST(sqlml_v1[1] AS DOUBLE PRECISION) AS "score"
FROM sqlml_1;

CREATE VIEW "rush_scores" AS
WITH sqlml_0 AS (
  SELECT sqlml_t."id" AS "id", CAST(round(extract(epoch FROM CAST(sqlml_t."at" AS timestamp)) * 1000000) AS double precision) AS sqlml_x0 FROM "shop"."customers" AS sqlml_t OFFSET 0
), sqlml_1 AS (
  SELECT "id", sqlml_x0, ((CASE WHEN ABS(sqlml_x0) > '4.4942328371557893e+307'::float8 THEN sqlml_x0 * 'infinity'::float8 ELSE sqlml_x0 END) - (CASE WHEN ABS(FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END))) > '5.201658376337718e+296'::float8 THEN FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * 'infinity'::float8 ELSE FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * '86400000000.0'::float8 END)) AS sqlml_v1 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT "id", sqlml_x0, CASE WHEN sqlml_v1 < 0 THEN (sqlml_v1 + '86400000000.0'::float8) ELSE sqlml_v1 END AS sqlml_v2 FROM sqlml_1 OFFSET 0
), sqlml_3 AS (
  SELECT "id", sqlml_x0, FLOOR((CASE WHEN ABS(sqlml_v2) < '1.778636325e-314'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v2 AS DOUBLE PRECISION) / '3600000000.0'::float8 END)) AS sqlml_v3 FROM sqlml_2 OFFSET 0
), sqlml_4 AS (
  SELECT "id", sqlml_x0, sqlml_v3, ((CASE WHEN ABS(sqlml_v3) < '1.1e-322'::float8 THEN '0.0'::float8 ELSE sqlml_v3 * '0.04577581175941302'::float8 END) + '-0.5171010289837733'::float8) AS sqlml_v4 FROM sqlml_3 OFFSET 0
), sqlml_5 AS (
  SELECT "id", sqlml_v4, CASE WHEN sqlml_v4 < '-709.782712893384'::float8 THEN '0.0'::float8 ELSE (CAST(1 AS DOUBLE PRECISION) / (1 + CASE WHEN (-sqlml_v4) > '709.782712893384'::float8 THEN 'infinity'::float8 WHEN (-sqlml_v4) < '-745.1332191019411'::float8 THEN '0.0'::float8 ELSE EXP((-sqlml_v4)) END)) END AS sqlml_v5, CASE WHEN (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (ABS(sqlml_x0) > '3.6893488147419103e+19'::float8) OR (sqlml_v3 IS NULL) OR (ABS(sqlml_v3) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 THEN 1 ELSE 0 END AS sqlml_v6 FROM sqlml_4 OFFSET 0
)
SELECT "id", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE CASE CAST(CAST(CASE WHEN ((sqlml_v4 > '0.0'::float8) AND NOT (sqlml_v4 IS NULL)) THEN 1 ELSE 0 END AS BIGINT) AS DOUBLE PRECISION) WHEN 0 THEN FALSE WHEN 1 THEN TRUE END END AS "predicted_label", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE ('1.0'::float8 - sqlml_v5) END AS "probability_false", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE sqlml_v5 END AS "probability_true", CASE WHEN sqlml_v6 = 1 THEN NULL ELSE sqlml_v4 END AS "score"
FROM sqlml_5;

CREATE OR REPLACE FUNCTION "rush"("at" timestamp) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT CAST(round(extract(epoch FROM CAST("at" AS timestamp)) * 1000000) AS double precision) AS sqlml_x0 OFFSET 0
), sqlml_1 AS (
  SELECT sqlml_x0, ((CASE WHEN ABS(sqlml_x0) > '4.4942328371557893e+307'::float8 THEN sqlml_x0 * 'infinity'::float8 ELSE sqlml_x0 END) - (CASE WHEN ABS(FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END))) > '5.201658376337718e+296'::float8 THEN FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * 'infinity'::float8 ELSE FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * '86400000000.0'::float8 END)) AS sqlml_v1 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT sqlml_x0, CASE WHEN sqlml_v1 < 0 THEN (sqlml_v1 + '86400000000.0'::float8) ELSE sqlml_v1 END AS sqlml_v2 FROM sqlml_1 OFFSET 0
), sqlml_3 AS (
  SELECT sqlml_x0, FLOOR((CASE WHEN ABS(sqlml_v2) < '1.778636325e-314'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v2 AS DOUBLE PRECISION) / '3600000000.0'::float8 END)) AS sqlml_v3 FROM sqlml_2 OFFSET 0
), sqlml_4 AS (
  SELECT sqlml_x0, sqlml_v3, ((CASE WHEN ABS(sqlml_v3) < '1.1e-322'::float8 THEN '0.0'::float8 ELSE sqlml_v3 * '0.04577581175941302'::float8 END) + '-0.5171010289837733'::float8) AS sqlml_v4 FROM sqlml_3 OFFSET 0
)
SELECT CASE WHEN (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (ABS(sqlml_x0) > '3.6893488147419103e+19'::float8) OR (sqlml_v3 IS NULL) OR (ABS(sqlml_v3) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 THEN NULL ELSE CASE CAST(CASE WHEN ((sqlml_v4 > '0.0'::float8) AND NOT (sqlml_v4 IS NULL)) THEN 1 ELSE 0 END AS BIGINT) WHEN 0 THEN FALSE WHEN 1 THEN TRUE END END FROM sqlml_4
$model$;

CREATE OR REPLACE FUNCTION "rush_probability_false"("at" timestamp) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT CAST(round(extract(epoch FROM CAST("at" AS timestamp)) * 1000000) AS double precision) AS sqlml_x0 OFFSET 0
), sqlml_1 AS (
  SELECT sqlml_x0, ((CASE WHEN ABS(sqlml_x0) > '4.4942328371557893e+307'::float8 THEN sqlml_x0 * 'infinity'::float8 ELSE sqlml_x0 END) - (CASE WHEN ABS(FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END))) > '5.201658376337718e+296'::float8 THEN FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * 'infinity'::float8 ELSE FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * '86400000000.0'::float8 END)) AS sqlml_v1 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT sqlml_x0, CASE WHEN sqlml_v1 < 0 THEN (sqlml_v1 + '86400000000.0'::float8) ELSE sqlml_v1 END AS sqlml_v2 FROM sqlml_1 OFFSET 0
), sqlml_3 AS (
  SELECT sqlml_x0, FLOOR((CASE WHEN ABS(sqlml_v2) < '1.778636325e-314'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v2 AS DOUBLE PRECISION) / '3600000000.0'::float8 END)) AS sqlml_v3 FROM sqlml_2 OFFSET 0
), sqlml_4 AS (
  SELECT sqlml_x0, sqlml_v3, ((CASE WHEN ABS(sqlml_v3) < '1.1e-322'::float8 THEN '0.0'::float8 ELSE sqlml_v3 * '0.04577581175941302'::float8 END) + '-0.5171010289837733'::float8) AS sqlml_v4 FROM sqlml_3 OFFSET 0
)
SELECT CASE WHEN (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (ABS(sqlml_x0) > '3.6893488147419103e+19'::float8) OR (sqlml_v3 IS NULL) OR (ABS(sqlml_v3) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 THEN NULL ELSE ('1.0'::float8 - CASE WHEN sqlml_v4 < '-709.782712893384'::float8 THEN '0.0'::float8 ELSE (CAST(1 AS DOUBLE PRECISION) / (1 + CASE WHEN (-sqlml_v4) > '709.782712893384'::float8 THEN 'infinity'::float8 WHEN (-sqlml_v4) < '-745.1332191019411'::float8 THEN '0.0'::float8 ELSE EXP((-sqlml_v4)) END)) END) END FROM sqlml_4
$model$;

CREATE OR REPLACE FUNCTION "rush_probability_true"("at" timestamp) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT CAST(round(extract(epoch FROM CAST("at" AS timestamp)) * 1000000) AS double precision) AS sqlml_x0 OFFSET 0
), sqlml_1 AS (
  SELECT sqlml_x0, ((CASE WHEN ABS(sqlml_x0) > '4.4942328371557893e+307'::float8 THEN sqlml_x0 * 'infinity'::float8 ELSE sqlml_x0 END) - (CASE WHEN ABS(FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END))) > '5.201658376337718e+296'::float8 THEN FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * 'infinity'::float8 ELSE FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * '86400000000.0'::float8 END)) AS sqlml_v1 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT sqlml_x0, CASE WHEN sqlml_v1 < 0 THEN (sqlml_v1 + '86400000000.0'::float8) ELSE sqlml_v1 END AS sqlml_v2 FROM sqlml_1 OFFSET 0
), sqlml_3 AS (
  SELECT sqlml_x0, FLOOR((CASE WHEN ABS(sqlml_v2) < '1.778636325e-314'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v2 AS DOUBLE PRECISION) / '3600000000.0'::float8 END)) AS sqlml_v3 FROM sqlml_2 OFFSET 0
), sqlml_4 AS (
  SELECT sqlml_x0, sqlml_v3, ((CASE WHEN ABS(sqlml_v3) < '1.1e-322'::float8 THEN '0.0'::float8 ELSE sqlml_v3 * '0.04577581175941302'::float8 END) + '-0.5171010289837733'::float8) AS sqlml_v4 FROM sqlml_3 OFFSET 0
)
SELECT CASE WHEN (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (ABS(sqlml_x0) > '3.6893488147419103e+19'::float8) OR (sqlml_v3 IS NULL) OR (ABS(sqlml_v3) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 THEN NULL ELSE CASE WHEN sqlml_v4 < '-709.782712893384'::float8 THEN '0.0'::float8 ELSE (CAST(1 AS DOUBLE PRECISION) / (1 + CASE WHEN (-sqlml_v4) > '709.782712893384'::float8 THEN 'infinity'::float8 WHEN (-sqlml_v4) < '-745.1332191019411'::float8 THEN '0.0'::float8 ELSE EXP((-sqlml_v4)) END)) END END FROM sqlml_4
$model$;

CREATE OR REPLACE FUNCTION "rush_score"("at" timestamp) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $model$
WITH sqlml_0 AS (
  SELECT CAST(round(extract(epoch FROM CAST("at" AS timestamp)) * 1000000) AS double precision) AS sqlml_x0 OFFSET 0
), sqlml_1 AS (
  SELECT sqlml_x0, ((CASE WHEN ABS(sqlml_x0) > '4.4942328371557893e+307'::float8 THEN sqlml_x0 * 'infinity'::float8 ELSE sqlml_x0 END) - (CASE WHEN ABS(FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END))) > '5.201658376337718e+296'::float8 THEN FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * 'infinity'::float8 ELSE FLOOR((CASE WHEN ABS(sqlml_x0) < '4.26872718007e-313'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_x0 AS DOUBLE PRECISION) / '86400000000.0'::float8 END)) * '86400000000.0'::float8 END)) AS sqlml_v1 FROM sqlml_0 OFFSET 0
), sqlml_2 AS (
  SELECT sqlml_x0, CASE WHEN sqlml_v1 < 0 THEN (sqlml_v1 + '86400000000.0'::float8) ELSE sqlml_v1 END AS sqlml_v2 FROM sqlml_1 OFFSET 0
), sqlml_3 AS (
  SELECT sqlml_x0, FLOOR((CASE WHEN ABS(sqlml_v2) < '1.778636325e-314'::float8 THEN '0.0'::float8 ELSE CAST(sqlml_v2 AS DOUBLE PRECISION) / '3600000000.0'::float8 END)) AS sqlml_v3 FROM sqlml_2 OFFSET 0
)
SELECT CASE WHEN (sqlml_x0 IS NULL) OR (ABS(sqlml_x0) > '1.7976931348623157e+308'::float8) OR (ABS(sqlml_x0) > '3.6893488147419103e+19'::float8) OR (sqlml_v3 IS NULL) OR (ABS(sqlml_v3) > '1.7976931348623157e+308'::float8) OR ABS(sqlml_x0) > '1e+150'::float8 THEN NULL ELSE ((CASE WHEN ABS(sqlml_v3) < '1.1e-322'::float8 THEN '0.0'::float8 ELSE sqlml_v3 * '0.04577581175941302'::float8 END) + '-0.5171010289837733'::float8) END FROM sqlml_3
$model$;
