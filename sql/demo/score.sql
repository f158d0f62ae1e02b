-- Score October to December with three models: the star binds each model's features by name,
-- in the join of three tables.
CREATE OR REPLACE TABLE scores AS
SELECT
    flight_id,
    carrier,
    arr_delay > 15 AS late,
    predict('delay_sklearn', *) AS label_sklearn,
    predict_proba('delay_sklearn', *, class := 'late') AS score_sklearn,
    predict('delay_xgboost', *) AS label_xgboost,
    predict_proba('delay_xgboost', *, class := 1) AS score_xgboost,
    predict('delay_lightgbm', *) AS label_lightgbm,
    predict_proba('delay_lightgbm', *, class := 'late') AS score_lightgbm
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum)
WHERE month >= 10;
