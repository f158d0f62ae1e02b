-- Why does each of these flights have its score? What two columns contribute most to it.
SELECT
    flight_id,
    carrier,
    prediction_value AS score,
    top_feature_attributions AS because
FROM ml_explain_predict(
    MODEL delay_lightgbm,
    (FROM arrivals WHERE dep_delay BETWEEN 5 AND 15 ORDER BY flight_id LIMIT 3),
    top_k_features := 2,
    class := 'late'
)
ORDER BY flight_id;
