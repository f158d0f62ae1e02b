"""Estimators around others: ties, members with other classes, thresholds, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostRegressor,
    BaggingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, LogisticRegression, RANSACRegressor, Ridge
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.preprocessing import FunctionTransformer, QuantileTransformer
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from xgboost import XGBClassifier, XGBRegressor

import sqlml
from sqlml.errors import BindError, MissingValueError, UnsupportedModelError
from sqlml.importers.registry import import_model
from tests.support.sklearn_checks import assert_both_raise, assert_same, scored

RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(240, 4)), 1)
NAMES = np.array(["a", "b", "c"], object)
Y3 = NAMES[np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.5])]
Y2 = NAMES[(X[:, 0] > 0.1).astype(int)]
R = X[:, 0] * 2 + X[:, 2] + RNG.normal(size=240) / 5


def tree(depth: int = 1, seed: int = 0) -> Any:
    return DecisionTreeClassifier(max_depth=depth, max_features=1, random_state=seed)


def trees(count: int) -> list[tuple[str, Any]]:
    return [(f"t{i}", tree(2, i)) for i in range(count)]


@pytest.mark.parametrize("weights", [None, [1, 1, 1, 1], [2, 1, 1, 0], [0.1, 0.2, 0.3, 0.6]])
@pytest.mark.parametrize("voting", ["hard", "soft"])
def test_voting_ties_go_to_the_first_class(voting: Any, weights: list[float] | None) -> None:
    model = VotingClassifier(trees(4), voting=voting, weights=weights).fit(X, Y3)
    imported = assert_same(model, X, exact=True)
    if voting == "soft":
        np.testing.assert_array_equal(scored(imported, X)["proba"], model.predict_proba(X))
    else:
        counts = np.array([np.bincount(row, minlength=3) for row in model.transform(X)])
        best = np.sort(counts, axis=1)
        assert (best[:, -1] == best[:, -2]).any()


def test_soft_votes_side_by_side_or_not_at_all() -> None:
    model = VotingClassifier(trees(2), voting="soft", flatten_transform=False).fit(X, Y3)
    assert "transform" not in scored(import_model(model), X)
    con = sqlml.connect()
    con.create_model("soft", model, inputs=list("abcdefghij")[: X.shape[1]])
    nulls = ", ".join(["0"] * X.shape[1])
    for ask in (
        lambda: sqlml.compile(model).transform(X),
        lambda: con.execute(f"SELECT transform('soft', {nulls})"),
    ):
        with pytest.raises((AttributeError, BindError), match="flatten_transform=True"):
            ask()
    model.flatten_transform = True
    assert scored(import_model(model), X)["transform"].shape == (240, 6)


@pytest.mark.parametrize("weights", [[-1, 2], [0, 0]])
def test_voting_weights_that_make_no_mean_are_refused(weights: list[int]) -> None:
    model = VotingRegressor([("a", Ridge()), ("b", Ridge())]).fit(X, R)
    model.weights = weights
    with pytest.raises(UnsupportedModelError, match="a weight of 0 or more"):
        import_model(model)


def test_a_member_is_named_when_it_cannot_be_imported() -> None:
    class Mine(Ridge):
        def predict(self, X: Any) -> Any:
            return super().predict(X)

    model = VotingRegressor([("good", Ridge()), ("mine", Mine())]).fit(X, R)
    with pytest.raises(UnsupportedModelError, match="'mine' of VotingRegressor: .*Mine"):
        import_model(model)


def test_stacking_on_predictions_of_numbers_is_covered_and_of_strings_refused() -> None:
    members = [("a", tree(3).fit(X, Y3))]
    model = StackingClassifier(
        members, final_estimator=tree(3), stack_method="predict_proba", cv="prefit"
    ).fit(X, Y3)
    assert_same(model, X)
    model.stack_method_ = ["predict"]
    with pytest.raises(UnsupportedModelError, match="'a' of StackingClassifier predicts strings"):
        import_model(model)


def test_stacking_with_a_member_of_numbered_classes_reads_the_numbers() -> None:
    numbered = np.digitize(X[:, 0], [0]) * 10 - 7
    model = StackingClassifier(
        [("a", tree(3).fit(X, numbered)), ("b", Ridge().fit(X, R))],
        stack_method="predict",
        cv="prefit",
    ).fit(X, Y2)
    imported = assert_same(model, X)
    assert set(np.unique(scored(imported, X)["transform"][:, 0])) == {-7.0, 3.0}


@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
@pytest.mark.parametrize("y", [Y2, Y3], ids=["two", "three"])
def test_calibration_of_a_model_fitted_before(method: str, y: Any) -> None:
    for inner in (tree(4), LinearSVC(), LogisticRegression()):
        frozen = FrozenEstimator(inner.fit(X, y))
        assert_same(CalibratedClassifierCV(frozen, method=method).fit(X, y), X)


def test_calibration_where_no_class_is_likely_is_uniform() -> None:
    model = CalibratedClassifierCV(tree(3), method="isotonic", cv=2).fit(X, Y3)
    for pair in model.calibrated_classifiers_:
        for calibrator in pair.calibrators:
            calibrator.y_thresholds_ = calibrator.y_thresholds_ * 0
            calibrator._build_f(calibrator.X_thresholds_, calibrator.y_thresholds_)
    made = scored(assert_same(model, X), X)["proba"]
    np.testing.assert_array_equal(made, np.full((240, 3), 1 / 3))


def test_calibration_of_members_that_miss_a_class() -> None:
    model = CalibratedClassifierCV(tree(3), method="sigmoid", cv=2).fit(X, Y3)
    some = Y3 != "c"
    for pair in model.calibrated_classifiers_:
        pair.estimator.fit(X[some], Y3[some])
    assert_same(model, X)  # one score, which counts for the first class: the source's own way


def test_one_against_the_rest_with_a_label_that_every_row_has() -> None:
    flags = np.stack([X[:, 0] > 0, np.ones(240, bool), np.zeros(240, bool)], axis=1).astype(int)
    with pytest.warns(UserWarning, match="present in all"):
        model = OneVsRestClassifier(tree(2)).fit(X, flags)
    imported = import_model(model)
    made = scored(imported, X)
    np.testing.assert_array_equal(made["label"], model.predict(X))
    np.testing.assert_allclose(made["proba"], model.predict_proba(X), rtol=1e-15)


def test_one_against_the_rest_keeps_zeros_where_no_member_gives_a_chance() -> None:
    model = OneVsRestClassifier(tree(12)).fit(X, Y3)
    fresh = RNG.normal(size=(500, 4))
    nobody = np.array([e.predict_proba(fresh)[:, 1] for e in model.estimators_]).sum(axis=0) == 0
    assert nobody.any()
    made = scored(assert_same(model, fresh), fresh)["proba"]
    assert (made[nobody] == 0).all()


@pytest.mark.parametrize("make", [OneVsRestClassifier, OneVsOneClassifier, OutputCodeClassifier])
@pytest.mark.parametrize("y", [Y2, Y3], ids=["two", "three"])
def test_trees_between_classes_make_ties(make: Any, y: Any) -> None:
    assert_same(make(tree(1)).fit(X, y), X)


def test_output_codes_that_are_equal_go_to_the_first_class() -> None:
    model = OutputCodeClassifier(LogisticRegression(), random_state=0).fit(X, Y3)
    model.code_book_[2] = model.code_book_[0]
    assert_same(model, X)


@pytest.mark.parametrize("pos_label", [None, "a", "b"])
@pytest.mark.parametrize("response", ["predict_proba", "decision_function"])
def test_a_score_on_the_threshold_is_positive(pos_label: Any, response: str) -> None:
    inner = LogisticRegression().fit(X, Y2)
    drawn = getattr(inner, response)(X)
    score = drawn if drawn.ndim == 1 else drawn[:, 0 if pos_label == "a" else 1]
    threshold = -score[7] if response == "decision_function" and pos_label == "a" else score[7]
    model = FixedThresholdClassifier(
        inner, threshold=float(threshold), pos_label=pos_label, response_method=response
    )
    assert_same(model.fit(X, Y2), X)


def test_a_fixed_threshold_around_a_fitted_model_needs_no_fit() -> None:
    model = FixedThresholdClassifier(LogisticRegression().fit(X, Y2), threshold=0.3)
    imported = import_model(model)
    decoded = imported.program.labels[0].array()[scored(imported, X)["label"][:, 0]]
    np.testing.assert_array_equal(decoded, model.predict(X))


def test_thresholds_say_what_is_wrong() -> None:
    unfitted = FixedThresholdClassifier(LogisticRegression())
    with pytest.raises(UnsupportedModelError, match="not fitted"):
        import_model(unfitted)
    model = FixedThresholdClassifier(LogisticRegression()).fit(X, Y2)
    model.pos_label = "z"
    with pytest.raises(UnsupportedModelError, match="pos_label='z'.*not one of its classes"):
        import_model(model)
    model = FixedThresholdClassifier(tree()).fit(X, Y2)
    model.response_method = "decision_function"
    with pytest.raises(UnsupportedModelError, match="has no decision_function"):
        import_model(model)


def test_a_tuned_threshold() -> None:
    model = TunedThresholdClassifierCV(RandomForestClassifier(4, random_state=0), cv=2)
    assert_same(model.fit(X, Y2), X)


def test_inner_models_of_wrappers_see_nan_where_they_take_it() -> None:
    rows = X.copy()
    rows[::7, 1] = np.nan
    assert_same(RANSACRegressor(DecisionTreeRegressor(), min_samples=0.5).fit(X, R), rows)
    partly = np.where(RNG.random(240) < 0.3, -1, (X[:, 0] > 0).astype(int))
    assert_same(SelfTrainingClassifier(tree(3)).fit(X, partly), rows)
    assert_both_raise(RANSACRegressor().fit(X, R), rows, MissingValueError, "LinearRegression")


def boosters() -> list[tuple[str, Any]]:
    return [
        ("xgb", XGBClassifier(n_estimators=4, max_depth=3)),
        ("lgb", LGBMClassifier(n_estimators=4, verbose=-1)),
    ]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_boosters_of_other_libraries_as_members() -> None:
    codes = np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.5])  # XGBoost takes classes from 0 alone
    mixed = [*boosters(), ("tree", tree(3))]
    alone = boosters()[:1]
    for model in (
        VotingClassifier(mixed, voting="soft"),
        VotingClassifier(mixed, voting="hard"),
        VotingClassifier(alone, voting="soft", weights=[0.3]),
        VotingClassifier([*alone, ("two", XGBClassifier(n_estimators=3))], voting="soft"),
        StackingClassifier(mixed, cv=2),
        BaggingClassifier(boosters()[0][1], 3, random_state=0),
        CalibratedClassifierCV(boosters()[0][1], method="isotonic", cv=2),
        CalibratedClassifierCV(boosters()[0][1], method="temperature", cv=2),
        OneVsRestClassifier(boosters()[1][1]),
    ):
        imported = import_model(model.fit(X, codes))
        made = scored(imported, X)
        decoded = imported.program.labels[0].array()[made["label"][:, 0]]
        np.testing.assert_array_equal(decoded, model.predict(X))
        if "proba" in made:
            np.testing.assert_allclose(
                made["proba"], model.predict_proba(X), rtol=1e-6
            )  # float32 members
    for regressor in (
        VotingRegressor([("a", XGBRegressor(n_estimators=4)), ("b", Ridge())]),
        VotingRegressor([("a", XGBRegressor(n_estimators=4))]),
        AdaBoostRegressor(XGBRegressor(n_estimators=2), n_estimators=3, random_state=0),
    ):
        made = scored(import_model(regressor.fit(X, R)), X)
        np.testing.assert_allclose(
            made["label"][:, 0], regressor.predict(X), rtol=1e-6
        )  # float32 members


@pytest.mark.parametrize("kind", [LabelPropagation, LabelSpreading])
def test_labels_spread_to_rows_near_and_far(kind: Any) -> None:
    partly = np.where(np.arange(240) % 3, np.digitize(X[:, 0], [-0.5, 0.5]), -1)
    for options in ({"gamma": 3.0}, {"kernel": "knn", "n_neighbors": 4}):
        assert_same(kind(**options).fit(X, partly), np.concatenate([X, X + 0.03, X * 1000]))


def test_labels_spread_by_a_python_function_are_refused() -> None:
    partly = np.where(np.arange(240) % 3, X[:, 0] > 0, -1)
    model = LabelSpreading(kernel=lambda a, b: np.exp(-np.abs(a @ b.T))).fit(X, partly)
    with pytest.raises(UnsupportedModelError, match="Python function as its kernel"):
        import_model(model)


@pytest.mark.parametrize(
    ("func", "inverse"), [(np.negative, np.negative), (np.cbrt, lambda y: y**3), (np.log1p, None)]
)
def test_python_functions_cannot_run_inside_sql(func: Any, inverse: Any) -> None:
    model = TransformedTargetRegressor(
        LinearRegression(), func=func, inverse_func=inverse or np.expm1
    ).fit(X, np.abs(R))
    if inverse is None or inverse is np.negative:
        assert_same(model, X)
    else:
        with pytest.raises(UnsupportedModelError, match="Python function <lambda>.*numpy"):
            import_model(model)


def test_targets_go_back_by_a_transformer_that_is_known() -> None:
    y = np.stack([R, np.exp(R)], axis=1)
    for output in ("uniform", "normal"):
        there = QuantileTransformer(n_quantiles=30, output_distribution=output)
        model = TransformedTargetRegressor(Ridge(), transformer=there).fit(X, y)
        assert_same(model, np.concatenate([X, X * 100]))
    model = TransformedTargetRegressor(Ridge(), transformer=PCA(1)).fit(X, y)
    with pytest.raises(UnsupportedModelError, match="inverse transform of PCA"):
        import_model(model)


def test_a_prediction_too_large_is_refused_by_both() -> None:
    model = TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1)
    model.fit(X, np.abs(R))
    model.regressor_.coef_[:] = 100
    assert_both_raise(model, np.full((1, 4), 1e308), MissingValueError, "prediction0")


def test_an_identity_that_is_not_validated() -> None:
    model = TransformedTargetRegressor(transformer=FunctionTransformer())
    assert_same(model.fit(X, R), X)


COLUMN = np.sort(np.round(RNG.normal(size=60), 1))[:, None]


@pytest.mark.parametrize("bounds", ["nan", "clip"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("increasing", [True, False, "auto"])
def test_isotonic_lines_and_what_lies_beyond_them(bounds: str, dtype: str, increasing: Any) -> None:
    model = IsotonicRegression(out_of_bounds=bounds, increasing=increasing)
    model.fit(COLUMN.astype(dtype), np.arange(60.0) % 17)
    edges = np.concatenate([COLUMN, COLUMN + 0.031, [[-1e9], [1e9]]])
    imported = import_model(model)
    made = scored(imported, edges)
    np.testing.assert_array_equal(made["label"][:, 0], model.predict(edges))
    np.testing.assert_array_equal(made["transform"][:, 0], model.transform(edges))


def test_isotonic_raises_beyond_its_points() -> None:
    model = IsotonicRegression(out_of_bounds="raise").fit(COLUMN, np.arange(60.0))
    assert_both_raise(model, [[COLUMN[0, 0] - 0.1]], MissingValueError, "out_of_bounds='raise'")
    assert_both_raise(model, [[COLUMN[-1, 0] + 0.1]], MissingValueError, "out_of_bounds='raise'")
    assert_both_raise(model, [[np.nan]], MissingValueError, "IsotonicRegression")


@pytest.mark.parametrize("bounds", ["nan", "clip", "raise"])
def test_isotonic_of_one_point_is_constant(bounds: str) -> None:
    model = IsotonicRegression(out_of_bounds=bounds).fit([[2.0], [2.0]], [1.0, 4.0])
    made = scored(import_model(model), np.array([[-9.0], [2.0], [9.0]]))
    assert made["label"].tolist() == [[2.5]] * 3


def test_unfitted_ones_say_so() -> None:
    for model in (
        IsotonicRegression(),
        VotingRegressor([("a", Ridge())]),
        CalibratedClassifierCV(),
        OneVsRestClassifier(Ridge()),
        TransformedTargetRegressor(),
    ):
        with pytest.raises(UnsupportedModelError, match="fit"):
            import_model(model)
