-- name: the table form with a table
SELECT id, predicted_label FROM ml_predict(MODEL churn, TABLE customers)
-- expect:
SELECT id, p AS predicted_label FROM scored

-- name: the spelling of BigQuery with a query
SELECT id, predicted_label FROM ML.PREDICT(MODEL value, (SELECT id, charges, visits FROM customers))
-- expect:
SELECT id, v AS predicted_label FROM scored

-- name: a table form among other tables
SELECT c.id, x.predicted_label, y.predicted_label AS worth
FROM customers c JOIN ml_predict(MODEL churn, TABLE customers) AS x ON x.id = c.id
JOIN ml_predict(MODEL value, (FROM customers WHERE id < 1000)) y ON y.id = c.id
WHERE x.predicted_label_probs['yes'] >= 0
-- expect:
SELECT id, p AS predicted_label, v AS worth FROM scored WHERE id < 1000
-- spark:
SELECT c.id, x.predicted_label, y.predicted_label AS worth
FROM customers c JOIN ml_predict(MODEL churn, TABLE customers) AS x ON x.id = c.id
JOIN ml_predict(MODEL value, (FROM customers SELECT * WHERE id < 1000)) y ON y.id = c.id
WHERE x.predicted_label_probs['yes'] >= 0

-- name: a table form of a table form
SELECT id, worth, predicted_label
FROM ml_predict(MODEL churn, (SELECT * RENAME (predicted_label AS worth)
                              FROM ml_predict(MODEL value, TABLE customers)))
-- expect:
SELECT id, v AS worth, p AS predicted_label FROM scored
-- spark:
SELECT id, worth, predicted_label
FROM ml_predict(MODEL churn, (SELECT * EXCEPT (predicted_label), predicted_label AS worth
                              FROM ml_predict(MODEL value, TABLE customers)))

-- name: the table form of a common table expression, with a version and a comment
WITH even AS (FROM customers WHERE id % 2 = 0)
SELECT count(*), predicted_label
FROM /* scored */ ml_predict(MODEL "churn"@last, TABLE even) GROUP BY ALL
-- expect:
SELECT count(*), p AS predicted_label FROM scored WHERE id % 2 = 0 GROUP BY ALL
-- spark:
WITH even AS (FROM customers |> WHERE id % 2 = 0)
SELECT count(*), predicted_label
FROM /* scored */ ml_predict(MODEL `churn`@last, TABLE even) GROUP BY ALL
