-- a table
SELECT a, predicted_label FROM ml_predict(MODEL forest, TABLE t) AS p;
-- becomes
SELECT a, predicted_label FROM (SELECT *, predict('forest', *) AS "predicted_label", predict_proba('forest', *) AS "predicted_label_probs" FROM t) AS p;

-- a query in another's rows
FROM ML.PREDICT(MODEL linear, (SELECT * EXCLUDE (predicted_label, predicted_label_probs) FROM ml_predict(MODEL forest, TABLE t)));
-- becomes
FROM (SELECT *, predict('linear', *) AS "predicted_label", predict_proba('linear', *) AS "predicted_label_probs" FROM (SELECT * EXCLUDE (predicted_label, predicted_label_probs) FROM (SELECT *, predict('forest', *) AS "predicted_label", predict_proba('forest', *) AS "predicted_label_probs" FROM t)));
