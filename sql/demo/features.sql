-- What a program fetches today to score outside the database: every feature, in the order of the
-- flights. The variable first_month says where the flights start.
SELECT
    flight_id,
    carrier, origin, dest, sched_dep_time, sched_arr_time, dep_delay, distance,
    temp, dewp, humid, wind_dir, wind_speed, wind_gust, precip, pressure, visib,
    built, manufacturer, engine, engines, seats
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum)
WHERE month >= getvariable('first_month')
ORDER BY flight_id;
