-- The three customers of each plan that are most likely to go.
WITH scored AS (
    SELECT id, plan, predict_proba('churn_model', *, class := 'yes') AS churns
    FROM customers
)
SELECT plan, id, churns
FROM scored
QUALIFY row_number() OVER (PARTITION BY plan ORDER BY churns DESC, id) <= 3
ORDER BY plan, churns DESC, id;
