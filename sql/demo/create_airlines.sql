-- Does each airline make up for lost time in its own way? One statement trains a model for each of
-- them, and one more of all flights for airlines with few.
CREATE MODEL arrival_by_airline
PARTITION BY carrier
OPTIONS (
    model_type = 'boosted_tree_regressor', library = 'lightgbm', label = 'arr_delay',
    n_estimators = 50, num_leaves = 15, unseen_partition = 'fallback', min_partition_rows = 200
)
AS SELECT
    carrier, origin, arr_delay, sched_dep_time, dep_delay, distance, temp, humid, wind_speed,
    precip, visib
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
WHERE month BETWEEN 7 AND 9 AND arr_delay IS NOT NULL
ORDER BY flight_id;
