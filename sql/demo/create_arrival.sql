-- By how many minutes is a flight late? The flights that training holds out calibrate the model,
-- with a quantile for each airport. Three months are enough, and recent ones are most alike.
CREATE MODEL arrival
OPTIONS (
    model_type = 'boosted_tree_regressor', library = 'lightgbm', label = 'arr_delay',
    n_estimators = 50, num_leaves = 31, calibration = 'split', calibration_by = 'origin'
)
AS SELECT
    origin, arr_delay, sched_dep_time, dep_delay, distance, temp, humid, wind_speed, precip, visib
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
WHERE month BETWEEN 7 AND 9 AND arr_delay IS NOT NULL
ORDER BY flight_id;
