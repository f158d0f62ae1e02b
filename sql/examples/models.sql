-- Models from files: what XGBoost's and LightGBM's own save_model write, no Python needed.
-- This Python writes charges.json; con is sqlml.connect(..) with the table of customers.sql:
--   import xgboost
--   rows = con.sql("SELECT * FROM customers WHERE monthly_charges IS NOT NULL ORDER BY id").df()
--   inputs = rows[["tenure"]].assign(premium=rows["plan"] == "premium")
--   model = xgboost.XGBRegressor(n_estimators=10).fit(inputs, rows["monthly_charges"])
--   model.save_model("charges.json")
CREATE MODEL charges_model FROM 'charges.json' FORMAT XGBOOST COMMENT 'monthly charges';
SHOW MODELS;
DESCRIBE MODEL charges_model;
SELECT id, predict('charges_model', tenure := tenure, premium := (plan = 'premium')) AS charges
FROM customers
ORDER BY id;
