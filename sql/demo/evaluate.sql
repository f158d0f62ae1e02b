-- How good are they on October to December? Flights that never arrived have no outcome.
CREATE OR REPLACE TEMP VIEW arrivals AS
SELECT
    *,
    CASE WHEN arr_delay > 15 THEN 'late' ELSE 'on time' END AS arrives,
    CAST(arr_delay > 15 AS INTEGER) AS is_late
FROM flights
LEFT JOIN hourly_weather USING (origin, time_hour)
LEFT JOIN aircraft USING (tailnum)
WHERE month >= 10 AND arr_delay IS NOT NULL;

SELECT 'sklearn' AS model, roc_auc, average_precision, log_loss, f1_score, rows
FROM ml_evaluate(MODEL delay_sklearn, TABLE arrivals, label := 'arrives', class := 'late')
UNION ALL
SELECT 'xgboost', roc_auc, average_precision, log_loss, f1_score, rows
FROM ml_evaluate(MODEL delay_xgboost, TABLE arrivals, label := 'is_late')
UNION ALL
SELECT 'lightgbm', roc_auc, average_precision, log_loss, f1_score, rows
FROM ml_evaluate(MODEL delay_lightgbm, TABLE arrivals, label := 'arrives', class := 'late');
