-- How sure is it? Intervals that should contain the delay of nine in ten flights, and how many of
-- October to December they contain: the world has changed since September, so it may be fewer.
SELECT
    origin,
    count(*) AS flights,
    avg((arr_delay BETWEEN minutes.lower AND minutes.upper)::INTEGER) AS covered,
    avg(minutes.upper - minutes.lower) AS width,
    rmse(arr_delay, predicted) AS rmse
FROM (
    SELECT
        origin, arr_delay,
        predict('arrival', *) AS predicted,
        predict_interval('arrival', *, coverage := 0.9) AS minutes
    FROM arrivals
)
GROUP BY origin
ORDER BY origin;
