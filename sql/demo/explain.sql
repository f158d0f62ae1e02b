EXPLAIN
SELECT flight_id, predict_proba('delay_sklearn', *, class := 'late') AS late
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum)
WHERE month >= 10;
