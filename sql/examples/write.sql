-- Scores go wherever a query's result goes: a new table, an old one, a view.
CREATE OR REPLACE TABLE churn_scores AS
SELECT id, predict_proba('churn_model', *, class := 'yes') AS churns FROM customers;

CREATE OR REPLACE VIEW churners AS
SELECT * FROM customers WHERE predict('churn_model', *) = 'yes';

ALTER TABLE customers ADD COLUMN IF NOT EXISTS expected VARCHAR;
UPDATE customers SET expected = predict('churn_model', tenure, plan, monthly_charges, region);

SELECT
    (SELECT count(*) FROM churn_scores) AS scores,
    (SELECT count(*) FROM churners) AS churners,
    (SELECT count(*) FROM customers WHERE expected = 'yes') AS expected;
