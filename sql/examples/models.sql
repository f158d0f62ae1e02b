-- Models from files: what XGBoost's and LightGBM's own save_model write, no Python needed.
CREATE MODEL charges_model FROM 'charges.json' FORMAT XGBOOST COMMENT 'monthly charges';
SHOW MODELS;
DESCRIBE MODEL charges_model;
SELECT id, predict('charges_model', tenure := tenure, premium := (plan = 'premium')) AS charges
FROM customers
ORDER BY id;
