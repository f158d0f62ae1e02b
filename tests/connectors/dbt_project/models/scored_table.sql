{{ config(materialized='table') }}
SELECT id, predict({{ ml_model(ref('churn')) }}, *) AS churn FROM {{ ref('customers') }}
