-- Probabilities: of all classes as a MAP, or of one class as a number.
SELECT
    id,
    predict_proba('churn_model', *) AS probabilities,
    predict_proba('churn_model', *, class := 'yes') AS churns,
    predict_proba('churn_model', *, class := 'no') AS stays
FROM customers
ORDER BY id;
