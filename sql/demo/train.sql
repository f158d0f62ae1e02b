-- What the models learn from: the flights of January to September that arrived, with what is
-- known when a plane leaves its gate. The weather is that of the scheduled hour of departure.
SELECT
    carrier, origin, dest, sched_dep_time, sched_arr_time, dep_delay, distance,
    temp, dewp, humid, wind_dir, wind_speed, wind_gust, precip, pressure, visib,
    built, manufacturer, engine, engines, seats,
    arr_delay > 15 AS late
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum)
WHERE month <= 9 AND arr_delay IS NOT NULL
ORDER BY flight_id;
