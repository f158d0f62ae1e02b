-- A model inside a query: airlines with the largest share of flights likely to be late.
SELECT
    name AS airline,
    count(*) AS flights,
    avg(predict_proba('delay_lightgbm', *, class := 'late')) AS predicted,
    avg((arr_delay > 15)::INTEGER) AS observed
FROM flights
JOIN airlines USING (carrier)
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum)
WHERE month >= 10 AND arr_delay IS NOT NULL
GROUP BY airline
HAVING flights >= 100
ORDER BY predicted DESC
LIMIT 5;
