-- The third model is trained where it scores: a tenth of the flights of January to September is
-- held out, and says when to stop.
CREATE MODEL delay_lightgbm
OPTIONS (
    model_type = 'boosted_tree_classifier', library = 'lightgbm', label = 'arrives',
    n_estimators = 200, num_leaves = 63, learning_rate = 0.1, eval_fraction = 0.1
)
AS SELECT
    CASE WHEN arr_delay > 15 THEN 'late' ELSE 'on time' END AS arrives,
    sched_dep_time, sched_arr_time, dep_delay, distance, temp, dewp, humid, wind_dir, wind_speed,
    wind_gust, precip, pressure, visib, built, engines, seats
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum)
WHERE month <= 9 AND arr_delay IS NOT NULL
ORDER BY flight_id;
