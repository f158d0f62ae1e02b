{{ config(materialized='ml_model', if_exists='keep') }}
FROM '{{ env_var('MODEL_FILE') }}'
