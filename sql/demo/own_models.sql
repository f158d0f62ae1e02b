-- The error in minutes of the model of all airlines, and of each airline's own, in October to
-- December.
SELECT
    carrier,
    count(*) AS flights,
    rmse(arr_delay, predict('arrival', *)) AS one_model,
    rmse(arr_delay, predict('arrival_by_airline', *)) AS own_model
FROM arrivals
GROUP BY carrier
ORDER BY flights DESC
LIMIT 8;
