-- A table of 2,000 customers, made up and the same each time: churned depends on the other
-- columns and on chance. Some monthly charges and regions are unknown.
CREATE OR REPLACE TABLE customers AS
WITH drawn AS (
    SELECT
        i AS id,
        (hash(i, 'tenure') % 72)::INTEGER + 1 AS tenure,
        ['basic', 'standard', 'premium'][(hash(i, 'plan') % 3)::INTEGER + 1] AS plan,
        round(20 + (hash(i, 'charges') % 10000) / 125, 2) AS charges,
        ['north', 'south', 'east', 'west'][(hash(i, 'region') % 4)::INTEGER + 1] AS place,
        (hash(i, 'chance') % 1000) / 1000 AS chance
    FROM range(1, 2001) AS numbers (i)
)
SELECT
    id::INTEGER AS id,
    tenure,
    plan,
    CASE WHEN hash(id, 'no charges') % 20 > 0 THEN charges END AS monthly_charges,
    CASE WHEN hash(id, 'no region') % 10 > 0 THEN place END AS region,
    CASE
        WHEN chance < 0.75 * exp(-tenure / 24) + 0.004 * (charges - 20)
            - (CASE plan WHEN 'premium' THEN 0.25 ELSE 0 END)
        THEN 'yes' ELSE 'no'
    END AS churned
FROM drawn
ORDER BY id;
