"""Random pipelines against scikit-learn: the whole way from a frame to scores, passes included."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline

import sqlml
from sqlml.errors import ScoringError, UnsupportedModelError
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.types import Array
from sqlml.verifying.rounding_ties import find_rounding_ties
from sqlml.verifying.verification import verify_object
from tests.contract.random_pipelines import Recipe, build, recipes, table, target
from tests.support.oracles import batch

usual = settings(
    max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
many = settings(usual, max_examples=2000, derandomize=False)
REFUSED = ("its splines are not defined",)
METHODS = ("predict", "predict_proba", "decision_function")


@usual
@given(recipes())
def test_pipelines_score_as_scikit_learn_does(recipe: Recipe) -> None:
    check(recipe)


@pytest.mark.nightly
@many
@given(recipes())
def test_many_pipelines_score_as_scikit_learn_does(recipe: Recipe) -> None:
    check(recipe)


@pytest.mark.parametrize(
    ("columns", "gaps"),
    [
        (("age", "income", "ratio"), ("standard",)),
        (("ratio", "age", "income", "visits", "zip"), ()),  # 253 terms in each sum
    ],
)
def test_what_is_left_of_two_large_distances_is_rounding(
    columns: tuple[str, ...], gaps: tuple[str, ...]
) -> None:
    """Polynomials of polynomials: the score is the difference of two numbers of 1e19."""
    check(
        Recipe(
            seed=0,
            task="two",
            labels="string",
            columns=columns,
            gaps=gaps,
            imputer="mean",
            dense=("polynomial", "polynomial"),
            strings=None,
            remainder="drop",
            selector="none",
            model="centroid",
            objects=False,
        )
    )


NORMALISED = Recipe(
    seed=0,
    task="two",
    labels="string",
    columns=("zip", "ratio", "visits"),
    gaps=(),
    imputer="mean",
    dense=("l2",),
    strings=None,
    remainder="drop",
    selector="none",
    model="centroid",
    objects=False,
)
"""Behind the Normalizer the first column is 1 with a deviation of 3e-6: distances are of 1e11."""


def test_distances_made_of_squares_are_rounding() -> None:
    check(NORMALISED)
    check(replace(NORMALISED, columns=("zip", "age", "income"), remainder="passthrough"))


def test_rounding_may_decide_all_rows() -> None:
    columns = ("ratio", "visits", "level")
    check(replace(NORMALISED, seed=2465, columns=columns, dense=("bins", "bins")))


def test_a_sum_of_large_terms_is_rounding() -> None:
    """A constant column of another value lies 1e10 variances away, and adds that to all classes."""
    check(
        Recipe(
            seed=0,
            task="two",
            labels="string",
            columns=("age", "income", "visits", "ratio", "level", "constant"),
            gaps=(),
            imputer="mean",
            dense=(),
            strings="one hot dropped",
            remainder="drop",
            selector="none",
            model="gaussian nb",
            objects=False,
        )
    )


def test_a_wrong_program_is_not_taken_for_rounding() -> None:
    """That of another fit, where digits are lost, and where they are not."""
    for recipe in (NORMALISED, replace(NORMALISED, dense=())):
        model = fitted(recipe)
        other = sqlml.compile(fitted(replace(recipe, seed=1)))
        assert not verify_object(model, other.program, other.features).agrees


@pytest.mark.parametrize("imputer", ["mean", "frequent"])
def test_a_tie_behind_a_product_is_broken_either_way(imputer: str) -> None:
    """Three of four neighbours at distance 1: PCA's last bit says which, and is another for one row
    than for 40."""
    strings = None if imputer == "mean" else "one hot dropped"
    check(
        Recipe(
            seed=176,
            task="two",
            labels="string",
            columns=("active", "constant", "age"),
            gaps=(),
            imputer=imputer,
            dense=("pca",),
            strings=strings,
            remainder="drop",
            selector="none",
            model="knn",
            objects=False,
        )
    )


@pytest.mark.parametrize(
    ("seed", "columns", "gaps", "selector"),
    [
        (6, ("age", "income", "ratio"), (), "best"),
        (
            607,
            ("constant", "zip", "age", "ratio", "visits", "active"),
            ("standard without mean", "power"),
            "percentile",
        ),
    ],
)
def test_a_tie_of_points_that_are_sums_is_broken_either_way(
    seed: int, columns: tuple[str, ...], gaps: tuple[str, ...], selector: str
) -> None:
    """Behind an L1 norm, the points of a quadrant are at one distance but for their last bits."""
    check(
        Recipe(
            seed=seed,
            task="two",
            labels="string",
            columns=columns,
            gaps=gaps,
            imputer="frequent",
            dense=("whitened pca", "l1"),
            strings="imputed one hot",
            remainder="drop",
            selector=selector,
            model="knn weighted",
            objects=False,
        )
    )


def test_bounds_that_exclude_perturbed_points_explain_nothing() -> None:
    """Small variances enlarge an ulp of a point beyond the radius 0 of its ball."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(40, 60)) * 1e3, 3, axis=0)
    neighbours = KNeighborsClassifier(
        3, algorithm="ball_tree", leaf_size=2, metric="seuclidean", metric_params={"V": [1e-9] * 20}
    )
    model = make_pipeline(PCA(20), neighbours).fit(x, rng.integers(0, 2, 120))
    program = sqlml.compile(model).program
    ours, theirs = {"proba": np.zeros((1, 2))}, {"proba": np.ones((1, 2))}
    assert not find_rounding_ties(program, lambda _: ours, ours, theirs, 1e-6)


def check(recipe: Recipe) -> None:
    model = fitted(recipe)
    try:
        scorer = sqlml.compile(model)
    except UnsupportedModelError as error:
        assert any(reason in str(error) for reason in REFUSED)
        assume(False)
    found = verify_object(model, scorer.program, scorer.features)
    assert found.agrees, found.complaint
    seen = table(recipe, 40, 1, unseen=False)
    compare(model, scorer, seen, seen)
    strange = table(recipe, 12, 2, unseen=recipe.strings is not None)
    for i in range(len(strange)):  # row by row, since one row that is refused stops a batch
        compare(model, scorer, strange.iloc[i : i + 1], seen)


def fitted(recipe: Recipe) -> Pipeline:
    """The pipeline, fitted; a recipe that scikit-learn itself cannot fit is thrown away."""
    frame = table(recipe, 60, 0, unseen=False)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return build(recipe).fit(frame, target(recipe, frame))
        except (ValueError, IndexError, np.linalg.LinAlgError):
            assume(False)
            raise


def compare(model: Pipeline, scorer: sqlml.Scorer, rows: pd.DataFrame, good: pd.DataFrame) -> None:
    """Assert that both answer alike, or that both refuse.

    A check goes with a column that the model ignores; so where the source refuses, it is asked
    again with a value of `good` in the columns that the Program does not read.
    """
    undecided = np.zeros(len(rows), bool)
    for method in reversed(METHODS):
        if not hasattr(model, method):
            continue
        theirs = asked(model, method, rows)
        if theirs is None:
            ignored = [c for c in rows.columns if c not in scorer.program.inputs]
            mended = rows.copy()
            for column in ignored:
                value = good[column].dropna().iloc[0]
                mended[column] = pd.Series([value] * len(rows), rows.index, rows[column].dtype)
            theirs = asked(model, method, mended)
        if theirs is None:
            # The passes may drop a check too; the Program has it.
            with pytest.raises(ScoringError):
                reference.run(scorer.program, batch(scorer.program, rows))
            continue
        ours = getattr(scorer, method)(rows)
        assert ours.shape == theirs.shape
        try:
            agree(ours, theirs, undecided)
        except AssertionError:
            # Brute-force neighbours: scikit-learn rounds distances otherwise for one row than for
            # several, and so breaks ties otherwise. Ours are those of a batch.
            many = None if len(rows) > 1 else asked(model, method, pd.concat([rows, good]))
            if many is not None and not np.array_equal(many[: len(rows)], theirs):
                theirs = many[: len(rows)]
            agree(rounded(scorer, method, rows, ours, theirs), theirs, undecided)
        if theirs.dtype.kind == "f":
            undecided |= _undecided(theirs)


def rounded(
    scorer: sqlml.Scorer, method: str, rows: pd.DataFrame, ours: Array, theirs: Array
) -> Array:
    """`ours`, with the source's answers for rows where other roundings of our sums give them."""

    def answer(program: Program) -> dict[str, Array]:
        other = sqlml.Scorer(program, scorer.features, {"backend": "reference"})
        return {method: getattr(other, method)(rows)}

    found = find_rounding_ties(scorer.program, answer, {method: ours}, {method: theirs}, 1e-6)
    made = ours.copy()
    made[list(found)] = theirs[list(found)]
    return made


def agree(ours: Array, theirs: Array, undecided: Array) -> None:
    """Assert that numbers are equal within the contract, and labels where they are decided."""
    if theirs.dtype.kind == "f":
        size = np.abs(theirs[np.isfinite(theirs)]).max(initial=1)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9 * size)
    else:
        differ = (ours != theirs) & ~undecided
        assert not differ.any(), f"{ours[differ][:3]} for {theirs[differ][:3]}"


def asked(model: Pipeline, method: str, rows: pd.DataFrame) -> Array | None:
    """The source's answer; None where it refuses."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return np.asarray(getattr(model, method)(rows))
        except ValueError:
            return None


def _undecided(scores: Array) -> Array:
    """Rows whose two best classes the source itself tells apart by rounding alone, 1e-12."""
    if scores.ndim == 1:
        return np.asarray(np.abs(scores) < 1e-12)
    best = np.sort(scores, axis=1)[:, -2:]
    return np.asarray(best[:, 1] - best[:, 0] < 1e-12)
