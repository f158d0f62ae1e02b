-- Every way to hand a row to a model; all give the same label. Columns bind by name, but for a
-- bare list, which binds by position. Columns that the model does not know, as id, are ignored.
SELECT
    id,
    predict('churn_model', *) AS by_star,
    predict('churn_model', c.*) AS by_table,
    predict('churn_model', * EXCLUDE (id, churned)) AS by_exclude,
    predict('churn_model', * REPLACE (lower(plan) AS plan)) AS by_replace,
    predict('churn_model', tenure := tenure, region := c.region, plan := plan,
            monthly_charges := monthly_charges) AS by_name,
    predict('churn_model', {'plan': plan, 'tenure': tenure, 'region': region,
                            'monthly_charges': monthly_charges}) AS by_struct,
    predict('churn_model', c) AS by_row,
    predict('churn_model', tenure, plan, monthly_charges, region) AS by_position
FROM customers AS c
ORDER BY id;
