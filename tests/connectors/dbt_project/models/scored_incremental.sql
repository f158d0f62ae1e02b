{{ config(materialized='incremental', unique_key='id') }}
SELECT id, predict({{ ml_model(ref('churn')) }}, *) AS churn FROM {{ ref('customers') }}
{% if is_incremental() %} WHERE id > (SELECT max(id) FROM {{ this }}) {% endif %}
