-- Score October to December in DuckDB's own shell, without Python. After LOAD, each model is a
-- function of the columns that it was trained on, in that order.
LOAD './delays.duckdb_extension';

COPY (
    SELECT
        flight_id,
        delay_sklearn_proba(
            sched_dep_time, sched_arr_time, dep_delay, distance, temp, dewp, humid, wind_dir,
            wind_speed, wind_gust, precip, pressure, visib, built, engines, seats,
            carrier, origin, engine, dest, manufacturer
        )['late'] AS score_sklearn,
        delay_xgboost_proba(
            sched_dep_time, sched_arr_time, dep_delay, distance, temp, dewp, humid, wind_dir,
            wind_speed, wind_gust, precip, pressure, visib, built, engines, seats
        )[1] AS score_xgboost,
        delay_lightgbm_proba(
            sched_dep_time, sched_arr_time, dep_delay, distance, temp, dewp, humid, wind_dir,
            wind_speed, wind_gust, precip, pressure, visib, built, engines, seats
        )['late'] AS score_lightgbm
    FROM 'flights.parquet'
) TO 'scores.parquet';

SELECT version(), count(*) FROM 'scores.parquet';
