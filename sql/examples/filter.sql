-- Who is most likely to go, among those who pay well?
SELECT id, plan, predict_proba('churn_model', *, class := 'yes') AS churns
FROM customers
WHERE monthly_charges > 60 AND predict('churn_model', *) = 'yes'
ORDER BY churns DESC, id
LIMIT 10;
