{{ config(materialized='ml_model', ml_config={
    'model_type': 'logistic_reg', 'label': 'churned', 'data_split_method': 'no_split', 'l2_reg': 0.5
}) }}
SELECT visits, age, churned FROM {{ ref('customers') }}
