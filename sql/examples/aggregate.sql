-- How many will go, per region, and what do they pay?
SELECT
    coalesce(region, 'unknown') AS region,
    predict('churn_model', *) AS label,
    count(*) AS customers,
    round(sum(monthly_charges), 2) AS charges,
    avg(predict_proba('churn_model', *, class := 'yes')) AS churns
FROM customers
GROUP BY ALL
HAVING count(*) > 10
ORDER BY ALL;
