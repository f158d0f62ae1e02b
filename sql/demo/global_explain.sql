-- What do its predictions depend on most? The mean size of each column's contribution.
SELECT feature, attribution
FROM ml_global_explain(
    MODEL delay_lightgbm, (FROM arrivals WHERE flight_id % 50 = 0), class := 'late'
)
ORDER BY attribution DESC
LIMIT 5;
