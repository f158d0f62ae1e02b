"""`fit_catboost`: trees by CatBoost."""

from __future__ import annotations

from typing import Any

from sqlml.training.fitting.fitting import Fitting
from sqlml.training.storage.part import Part


def fit_catboost(fitting: Fitting) -> Any:
    """Trees by CatBoost, from a Pool that knows its categories."""
    import catboost

    log, held_out = fitting.log, fitting.held_out
    raised: list[BaseException] = []

    class Logging:
        """A round is logged with the losses that CatBoost has computed."""

        def after_iteration(self, info: Any) -> bool:
            last = {
                side: list(metrics.items())[0] for side, metrics in info.metrics.items() if metrics
            }
            log.metric = next(iter(last.values()))[0] if last else ""
            losses = {side: values[-1] for side, (_, values) in last.items()}
            try:
                log.round(losses.get("learn"), losses.get("validation"))
            except BaseException as error:  # which CatBoost would wrap
                raised.append(error)
            return not raised

    def pool(part: Part) -> Any:
        options = {} if part.group is None else {"group_id": part.group}
        names = fitting.categories
        return catboost.Pool(part.X, part.y, cat_features=names, weight=part.weight, **options)

    parameters = dict(fitting.parameters)
    if fitting.categories:
        # A clone of the estimator is fitted to a frame, which does not say which columns these are.
        # CatBoost copies a list, which scikit-learn's clone refuses.
        parameters["cat_features"] = tuple(fitting.categories)
    estimator = fitting.request.trainer.estimator_class()(**parameters)
    options: dict[str, Any] = {}
    if held_out is not None:
        options["eval_set"] = pool(held_out)
        options["early_stopping_rounds"] = fitting.patience
        options["use_best_model"] = fitting.patience is not None
    estimator.fit(pool(fitting.fitted), callbacks=[Logging()], **options)
    if raised:
        raise raised[0]
    return estimator
