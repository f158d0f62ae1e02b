-- name: the table form with a table
SELECT id, predicted_churn FROM ml_predict(MODEL churn, TABLE customers)
-- known: NotYetError: the table form is reserved for a later version
-- expect:
SELECT id, p AS predicted_churn FROM scored

-- name: the spelling of BigQuery with a query
SELECT id, predicted_value FROM ML.PREDICT(MODEL value, (SELECT id, charges, visits FROM customers))
-- known: NotYetError: the table form is reserved for a later version
-- expect:
SELECT id, v AS predicted_value FROM scored
