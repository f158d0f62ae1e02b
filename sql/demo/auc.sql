-- Area under the ROC curve by the rank sum (Mann and Whitney), equal scores sharing their mean
-- rank. Flights that never arrived have no outcome.
WITH long AS (
    UNPIVOT (
        SELECT late, score_sklearn, score_xgboost, score_lightgbm FROM scores
        WHERE late IS NOT NULL
    )
    ON score_sklearn, score_xgboost, score_lightgbm
    INTO NAME model VALUE score
),
ranked AS (
    SELECT
        model,
        late,
        rank() OVER by_score + (count(*) OVER (PARTITION BY model, score) - 1) / 2 AS place
    FROM long
    WINDOW by_score AS (PARTITION BY model ORDER BY score)
),
sums AS (
    SELECT
        model,
        count(*) AS flights,
        count(*) FILTER (late) AS late_flights,
        sum(place) FILTER (late) AS late_places
    FROM ranked
    GROUP BY model
)
SELECT
    replace(model, 'score_', '') AS model,
    flights,
    late_flights,
    (late_places - late_flights * (late_flights + 1) / 2)
        / (late_flights * (flights - late_flights)) AS auc
FROM sums
ORDER BY model;
