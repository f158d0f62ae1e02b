{{ config(materialized='view') }}
SELECT id, predict_proba({{ ml_model(ref('imported')) }}, *, class := 1) AS p FROM {{ ref('customers') }}
