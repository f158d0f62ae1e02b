"""Trees, forests, boosting and bagging of scikit-learn, and the dummies."""

from __future__ import annotations

import pandas as pd
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    IsolationForest,
    RandomForestClassifier,
    RandomForestRegressor,
    RandomTreesEmbedding,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import (
    DecisionTreeClassifier,
    DecisionTreeRegressor,
    ExtraTreeClassifier,
    ExtraTreeRegressor,
)

from tests.contract.estimators.case import Case, gaps, numbers, positive, real, three, two
from tests.contract.estimators.linear import EVERY_KIND, above_zero

PROBA, LABEL = frozenset({"proba"}), frozenset({"label"})


def grouped(rows: int, seed: int) -> pd.DataFrame:
    """`numbers` with whole numbers from 0 in two columns, for categorical splits."""
    frame = numbers(rows, seed)
    frame["whole"] += 3
    frame["tied"] = (frame["tied"] * 4 + 8).round()
    return frame


CASES: tuple[Case, ...] = (
    Case(
        "DecisionTreeClassifier two",
        lambda: DecisionTreeClassifier(random_state=0),
        two,
        data=gaps,
        labels=EVERY_KIND,
        bits=PROBA,
    ),
    Case(
        "DecisionTreeClassifier three",
        lambda: DecisionTreeClassifier(
            max_leaf_nodes=12, criterion="entropy", class_weight="balanced", random_state=0
        ),
        three,
        data=gaps,
        bits=PROBA,
    ),
    Case("DecisionTreeClassifier stump", lambda: DecisionTreeClassifier(max_depth=1), three),
    Case(
        "DecisionTreeClassifier pruned",
        lambda: DecisionTreeClassifier(ccp_alpha=0.02, random_state=0),
        three,
    ),
    Case("DecisionTreeClassifier leaf", lambda: DecisionTreeClassifier(min_samples_leaf=200), two),
    *(
        Case(
            f"DecisionTreeRegressor {criterion}",
            lambda criterion=criterion: DecisionTreeRegressor(
                criterion=criterion, max_depth=6, random_state=0
            ),
            above_zero,
            data=numbers if criterion == "absolute_error" else gaps,
            bits=LABEL,
        )
        for criterion in ("squared_error", "friedman_mse", "absolute_error", "poisson")
    ),
    Case("ExtraTreeClassifier", lambda: ExtraTreeClassifier(random_state=0), three, bits=PROBA),
    Case("ExtraTreeRegressor", lambda: ExtraTreeRegressor(random_state=0), real, bits=LABEL),
    Case(
        "RandomForestClassifier two",
        lambda: RandomForestClassifier(7, random_state=0),
        two,
        data=gaps,
        labels=EVERY_KIND,
        bits=PROBA,
    ),
    Case(
        "RandomForestClassifier three",
        lambda: RandomForestClassifier(9, max_depth=5, max_samples=0.5, random_state=0),
        three,
        data=gaps,
        bits=PROBA,
    ),
    Case(
        "RandomForestRegressor",
        lambda: RandomForestRegressor(7, max_features=0.5, random_state=0),
        real,
        data=gaps,
        bits=LABEL,
    ),
    Case(
        "RandomForestRegressor warm",
        lambda: RandomForestRegressor(5, warm_start=True, bootstrap=False, random_state=0),
        real,
        bits=LABEL,
    ),
    Case(
        "ExtraTreesClassifier",
        lambda: ExtraTreesClassifier(7, random_state=0),
        three,
        data=gaps,
        bits=PROBA,
    ),
    Case(
        "ExtraTreesRegressor",
        lambda: ExtraTreesRegressor(7, bootstrap=True, random_state=0),
        real,
        data=gaps,
        bits=LABEL,
    ),
    Case(
        "RandomTreesEmbedding",
        lambda: RandomTreesEmbedding(n_estimators=5, max_depth=4, random_state=0),
        bits=frozenset({"transform"}),
    ),
    Case(
        "RandomTreesEmbedding dense",
        lambda: RandomTreesEmbedding(
            n_estimators=3, max_leaf_nodes=9, max_depth=None, sparse_output=False, random_state=0
        ),
        bits=frozenset({"transform"}),
    ),
    Case("IsolationForest", lambda: IsolationForest(n_estimators=20, random_state=0)),
    Case(
        "IsolationForest contamination",
        lambda: IsolationForest(n_estimators=20, contamination=0.1, random_state=0),
        data=positive,
    ),
    Case(
        "IsolationForest few columns",
        lambda: IsolationForest(
            n_estimators=15, max_features=0.5, max_samples=40, bootstrap=True, random_state=0
        ),
    ),
    Case(
        "IsolationForest gaps", lambda: IsolationForest(n_estimators=9, random_state=0), data=gaps
    ),
    Case("IsolationForest one row a tree", lambda: IsolationForest(max_samples=1, random_state=0)),
    *(
        Case(
            f"GradientBoostingClassifier {name}",
            lambda options=options: GradientBoostingClassifier(
                n_estimators=8, random_state=0, **options
            ),
            target,
            labels=labels,
            near="the order in which torch adds" if "forest" in name else "",
        )
        for name, target, labels, options in (
            ("two", two, EVERY_KIND, {}),
            ("three", three, ("string",), {"subsample": 0.7, "learning_rate": 0.3}),
            ("exponential", two, ("string",), {"loss": "exponential"}),
            ("zero", three, ("string",), {"init": "zero"}),
            ("most frequent", three, ("string",), {"init": DummyClassifier()}),
            ("forest", two, ("string",), {"init": RandomForestClassifier(5, random_state=0)}),
            ("forest three", three, ("string",), {"init": ExtraTreesClassifier(5, random_state=0)}),
        )
    ),
    *(
        Case(
            f"GradientBoostingRegressor {name}",
            lambda options=options: GradientBoostingRegressor(
                n_estimators=8, random_state=0, **options
            ),
            real,
            bits=LABEL,
        )
        for name, options in (
            ("squared_error", {"max_features": 0.5}),
            ("absolute_error", {"loss": "absolute_error"}),
            ("huber", {"loss": "huber"}),
            ("quantile", {"loss": "quantile", "alpha": 0.2}),
            ("zero", {"init": "zero"}),
        )
    ),
    Case(
        "GradientBoostingRegressor forest",
        lambda: GradientBoostingRegressor(
            n_estimators=8, init=RandomForestRegressor(5, random_state=0), random_state=0
        ),
        real,
    ),
    *(
        Case(
            f"HistGradientBoostingClassifier {name}",
            lambda options=options: HistGradientBoostingClassifier(
                max_iter=8, early_stopping=False, random_state=0, **options
            ),
            target,
            data=data,
            labels=labels,
        )
        for name, target, data, labels, options in (
            ("two", two, gaps, EVERY_KIND, {}),
            ("three", three, gaps, ("string",), {"max_depth": 3}),
            ("categorical", two, grouped, ("string",), {"categorical_features": [2, 4]}),
        )
    ),
    *(
        Case(
            f"HistGradientBoostingRegressor {name}",
            lambda options=options: HistGradientBoostingRegressor(
                max_iter=8, early_stopping=False, random_state=0, **options
            ),
            above_zero,
            data=gaps,
        )
        for name, options in (
            ("squared_error", {}),
            ("absolute_error", {"loss": "absolute_error"}),
            ("gamma", {"loss": "gamma"}),
            ("poisson", {"loss": "poisson"}),
            ("quantile", {"loss": "quantile", "quantile": 0.3}),
            ("monotonic", {"monotonic_cst": [1, 0, -1, 0, 0, 0]}),
        )
    ),
    Case("BaggingClassifier", lambda: BaggingClassifier(random_state=0), three, bits=PROBA),
    Case(
        "BaggingClassifier gaps",
        lambda: BaggingClassifier(max_features=0.5, bootstrap_features=True, random_state=0),
        two,
        data=gaps,
        labels=EVERY_KIND,
        bits=PROBA,
    ),
    Case(
        "BaggingClassifier few rows",
        lambda: BaggingClassifier(max_samples=4, n_estimators=12, random_state=0),
        three,
        bits=PROBA,
    ),
    Case(
        "BaggingClassifier linear",
        lambda: BaggingClassifier(
            make_pipeline(StandardScaler(), LogisticRegression()), 4, max_features=3, random_state=0
        ),
        three,
    ),
    Case(
        "BaggingClassifier votes",
        lambda: BaggingClassifier(LinearSVC(random_state=0), 5, random_state=0),
        three,
    ),
    Case(
        "BaggingClassifier forests",
        lambda: BaggingClassifier(RandomForestClassifier(3), 3, random_state=0),
        two,
        bits=PROBA,
    ),
    Case("BaggingRegressor", lambda: BaggingRegressor(random_state=0), real, bits=LABEL),
    Case(
        "BaggingRegressor gaps",
        lambda: BaggingRegressor(max_features=0.5, max_samples=0.4, random_state=0),
        real,
        data=gaps,
        bits=LABEL,
    ),
    Case("BaggingRegressor linear", lambda: BaggingRegressor(Ridge(), 4, random_state=0), real),
    Case(
        "AdaBoostClassifier two",
        lambda: AdaBoostClassifier(n_estimators=20, random_state=0),
        two,
        labels=EVERY_KIND,
        bits=frozenset({"score"}),
    ),
    Case(
        "AdaBoostClassifier three",
        lambda: AdaBoostClassifier(
            DecisionTreeClassifier(max_depth=2), n_estimators=15, learning_rate=0.5, random_state=0
        ),
        three,
        labels=EVERY_KIND[:2],
        bits=frozenset({"score"}),
    ),
    Case(
        "AdaBoostClassifier linear",
        lambda: AdaBoostClassifier(LogisticRegression(), n_estimators=5, random_state=0),
        three,
    ),
    *(
        Case(
            f"AdaBoostRegressor {loss}",
            lambda loss=loss: AdaBoostRegressor(n_estimators=12, loss=loss, random_state=0),
            real,
            bits=LABEL,
        )
        for loss in ("linear", "square", "exponential")
    ),
    Case(
        "AdaBoostRegressor linear model",
        lambda: AdaBoostRegressor(Ridge(), n_estimators=6, random_state=0),
        real,
    ),
    *(
        Case(
            f"DummyClassifier {strategy}",
            lambda strategy=strategy: DummyClassifier(strategy=strategy),
            three,
        )
        for strategy in ("prior", "most_frequent")
    ),
    Case(
        "DummyClassifier constant", lambda: DummyClassifier(strategy="constant", constant="no"), two
    ),
    *(
        Case(
            f"DummyRegressor {options['strategy']}",
            lambda options=options: DummyRegressor(**options),
            real,
            bits=LABEL,
        )
        for options in (
            {"strategy": "mean"},
            {"strategy": "median"},
            {"strategy": "quantile", "quantile": 0.3},
            {"strategy": "constant", "constant": 4.5},
        )
    ),
)
