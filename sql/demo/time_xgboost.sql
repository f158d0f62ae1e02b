-- Score all flights of the year with one model, to see how many rows a second that makes.
CREATE OR REPLACE TABLE timed_sql AS
SELECT flight_id, predict_proba('delay_xgboost', *, class := 1) AS score
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum);
