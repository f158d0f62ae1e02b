"""Estimators around others: stacking, voting, calibration, thresholds, one against the rest."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, LogisticRegression, Perceptron, Ridge
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from sqlml.training.estimators.encoded_target import EncodedTargetClassifier
from sqlml.types import Array
from tests.contract.estimators.case import Case, Target, real, three, two
from tests.contract.estimators.linear import EVERY_KIND, above_zero, narrow
from tests.contract.estimators.neural import three_flags, two_reals


def one_column(rows: int, seed: int) -> pd.DataFrame:
    """One column with ties, within the bounds that every seed reaches."""
    drawn = np.random.default_rng(seed).integers(-20, 21, rows) / 4
    drawn[:2] = (-5, 5)[:rows]
    return pd.DataFrame({"x0": drawn})


def partly(table: pd.DataFrame, seed: int) -> Array:
    """Three classes, of which every third row is not told (-1); float, so that -1 stays -1."""
    codes = three(table, seed).astype(float)
    codes[::3] = -1
    return codes


def logistic() -> Any:
    return LogisticRegression(random_state=0)


def svc() -> Any:
    return LinearSVC(random_state=0)


def tree() -> Any:
    return DecisionTreeClassifier(max_depth=3, random_state=0)


def forest() -> Any:
    return RandomForestClassifier(3, max_depth=3, random_state=0)


def classifiers() -> list[tuple[str, Any]]:
    return [
        ("linear", logistic()),
        ("tree", tree()),
        ("scaled", make_pipeline(StandardScaler(), logistic())),
    ]


def regressors() -> list[tuple[str, Any]]:
    return [("linear", Ridge()), ("tree", DecisionTreeRegressor(max_depth=4, random_state=0))]


def targets(name: str, make: Any, *pair: Target, **options: Any) -> tuple[Case, ...]:
    """One case per target."""
    return tuple(Case(f"{name} {t.__name__}", make, t, data=narrow, **options) for t in pair)


CASES: tuple[Case, ...] = (
    *targets("StackingClassifier", lambda: StackingClassifier(classifiers(), cv=3), two, three),
    *targets(
        "StackingClassifier passthrough",
        lambda: StackingClassifier(
            [("svc", svc()), ("forest", forest()), ("gone", "drop")],
            final_estimator=tree(),
            passthrough=True,
            cv=3,
        ),
        two,
        three,
        labels=EVERY_KIND[:2],
    ),
    *(
        Case(
            f"StackingClassifier {method}",
            lambda method=method: StackingClassifier(
                [("linear", logistic()), ("scaled", make_pipeline(StandardScaler(), logistic()))],
                stack_method=method,
                final_estimator=svc(),
                cv=3,
            ),
            three,
            data=narrow,
        )
        for method in ("predict_proba", "decision_function", "predict")
    ),
    Case(
        "StackingClassifier of a regressor",
        lambda: StackingClassifier([("ridge", Ridge()), ("tree", tree())], cv=3),
        three,
        data=narrow,
    ),
    Case("StackingRegressor", lambda: StackingRegressor(regressors(), cv=3), real, data=narrow),
    Case(
        "StackingRegressor passthrough",
        lambda: StackingRegressor(
            [*regressors(), ("gone", "drop")],
            final_estimator=RandomForestRegressor(5, random_state=0),
            passthrough=True,
            cv=3,
        ),
        real,
        data=narrow,
    ),
    *(
        Case(
            f"VotingClassifier {voting} {target.__name__} {weights}",
            lambda voting=voting, weights=weights: VotingClassifier(
                classifiers(), voting=voting, weights=weights
            ),
            target,
            data=narrow,
        )
        for voting in ("hard", "soft")
        for target, weights in ((two, None), (three, [2, 1, 1]), (three, [0.1, 0.7, 0.2]))
    ),
    Case(
        "VotingClassifier votes alone",
        lambda: VotingClassifier([("p", Perceptron()), ("svc", svc()), ("gone", "drop")]),
        three,
        data=narrow,
        labels=EVERY_KIND[:2],
    ),
    Case("VotingRegressor", lambda: VotingRegressor(regressors()), real),
    Case(
        "VotingRegressor weights",
        lambda: VotingRegressor([*regressors(), ("gone", "drop")], weights=[3, 1, 9]),
        real,
    ),
    *(
        case
        for method in ("sigmoid", "isotonic", "temperature")
        for name, inner in (("scores", svc), ("probabilities", forest))
        for case in targets(
            f"CalibratedClassifierCV {method} {name}",
            lambda method=method, inner=inner: CalibratedClassifierCV(
                inner(), method=method, cv=3, ensemble=inner is svc
            ),
            two,
            three,
        )
    ),
    Case(
        "CalibratedClassifierCV ensemble of forests",
        lambda: CalibratedClassifierCV(forest(), method="isotonic", cv=2),
        three,
        labels=EVERY_KIND[:2],
    ),
    *targets("OneVsRestClassifier scores", lambda: OneVsRestClassifier(svc()), two, three),
    *targets("OneVsRestClassifier linear", lambda: OneVsRestClassifier(logistic()), two, three),
    *targets("OneVsRestClassifier trees", lambda: OneVsRestClassifier(tree()), two, three),
    *targets("OneVsRestClassifier of regressors", lambda: OneVsRestClassifier(Ridge()), two, three),
    Case(
        "OneVsRestClassifier several labels",
        lambda: OneVsRestClassifier(logistic()),
        three_flags,
        data=narrow,
    ),
    Case(
        "OneVsRestClassifier several labels by trees",
        lambda: OneVsRestClassifier(tree()),
        three_flags,
        data=narrow,
    ),
    *targets("OneVsOneClassifier scores", lambda: OneVsOneClassifier(svc()), two, three),
    *targets("OneVsOneClassifier trees", lambda: OneVsOneClassifier(tree()), two, three),
    *targets(
        "OutputCodeClassifier",
        lambda: OutputCodeClassifier(logistic(), code_size=2.5, random_state=3),
        two,
        three,
    ),
    *targets(
        "OutputCodeClassifier trees",
        lambda: OutputCodeClassifier(tree(), code_size=3, random_state=1),
        three,
        near="distances of two codes that differ in members of equal probability",
    ),
    Case("SelfTrainingClassifier", lambda: SelfTrainingClassifier(logistic()), partly, data=narrow),
    *(
        Case(
            f"{kind.__name__} {name}",
            lambda kind=kind, options=options: kind(**options),
            partly,
            data=narrow,
            near="the order in which torch adds neighbours" if name == "knn" else "",
        )
        for kind in (LabelPropagation, LabelSpreading)
        for name, options in (
            ("rbf", {"gamma": 2.0}),
            ("knn", {"kernel": "knn", "n_neighbors": 5}),
        )
    ),
    Case("EncodedTargetClassifier", lambda: EncodedTargetClassifier(logistic()), three),
    Case("FixedThresholdClassifier", lambda: FixedThresholdClassifier(logistic()), two),
    Case(
        "FixedThresholdClassifier score",
        lambda: FixedThresholdClassifier(
            logistic(), threshold=-0.4, response_method="decision_function"
        ),
        two,
        labels=EVERY_KIND,
    ),
    *(
        Case(
            f"FixedThresholdClassifier first class {method}",
            lambda method=method: FixedThresholdClassifier(
                logistic(), threshold=0.3, pos_label="no", response_method=method
            ),
            two,
        )
        for method in ("predict_proba", "decision_function")
    ),
    Case("FixedThresholdClassifier svc", lambda: FixedThresholdClassifier(svc()), two),
    Case(
        "TunedThresholdClassifierCV",
        lambda: TunedThresholdClassifierCV(forest(), cv=3, random_state=0),
        two,
        labels=EVERY_KIND,
    ),
    Case(
        "TunedThresholdClassifierCV score",
        lambda: TunedThresholdClassifierCV(svc(), scoring="accuracy", thresholds=20, cv=3),
        two,
        data=narrow,
    ),
    Case("TransformedTargetRegressor", TransformedTargetRegressor, real),
    *(
        Case(
            f"TransformedTargetRegressor {type(scaler).__name__} {i}",
            partial(TransformedTargetRegressor, Ridge(), transformer=scaler),
            above_zero,
            data=narrow,
        )
        for i, scaler in enumerate(
            (
                StandardScaler(),
                StandardScaler(with_mean=False),
                MinMaxScaler((-2, 5), clip=True),
                MaxAbsScaler(),
                RobustScaler(),
                PowerTransformer(),
                PowerTransformer("box-cox", standardize=False),
                QuantileTransformer(n_quantiles=50),
                QuantileTransformer(n_quantiles=20, output_distribution="normal"),
            )
        )
    ),
    *(
        Case(
            f"TransformedTargetRegressor {func.__name__}",
            lambda func=func, back=back: TransformedTargetRegressor(
                LinearRegression(), func=func, inverse_func=back
            ),
            above_zero,
            data=narrow,
        )
        for func, back in (
            (np.log, np.exp),
            (np.log1p, np.expm1),
            (np.sqrt, np.square),
            (np.log2, np.exp2),
            (np.arcsinh, np.sinh),
        )
    ),
    Case(
        "TransformedTargetRegressor two targets",
        lambda: TransformedTargetRegressor(Ridge(), transformer=StandardScaler()),
        two_reals,
    ),
    *(
        Case(
            f"IsotonicRegression {bounds} {increasing}",
            lambda bounds=bounds, increasing=increasing: IsotonicRegression(
                out_of_bounds=bounds, increasing=increasing, y_min=-2, y_max=2
            ),
            real,
            data=one_column,
        )
        for bounds in ("nan", "clip", "raise")
        for increasing in (True, False)
    ),
)
