"""What is refused, for every class of the scikit-learn table: one clear error each.

Unfitted objects, classes of one's own, parameters of a newer version, Python functions, and
fitted objects that lack an attribute.
"""

from __future__ import annotations

import copy
import importlib
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_extraction import DictVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    HalvingRandomSearchCV,
    RandomizedSearchCV,
)
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sqlml.errors import UnsupportedModelError
from sqlml.importers.registry import find_class_key, import_model
from sqlml.importers.sklearn.estimator_table import COMPOSITES, IMPORTERS
from sqlml.ir.program import Program
from tests.contract.estimators.case import Case
from tests.contract.estimators.fitted import Fitted, quiet
from tests.contract.estimators.table import ALL

STATELESS = frozenset(
    (
        "sklearn.feature_extraction._hash.FeatureHasher",
        "sklearn.feature_extraction.text.HashingVectorizer",
    )
)
"""Classes whose objects compute the same before fit and after it."""

X = np.random.default_rng(0).normal(size=(60, 3))
SEARCHED = {"C": [0.1, 1.0]}
ALONE: dict[str, Callable[[], Any]] = {
    "DictVectorizer": DictVectorizer,
    "FrozenEstimator": lambda: FrozenEstimator(LogisticRegression()),
    "GridSearchCV": lambda: GridSearchCV(LogisticRegression(), SEARCHED, cv=2),
    "HalvingGridSearchCV": lambda: HalvingGridSearchCV(LogisticRegression(), SEARCHED, cv=2),
    "HalvingRandomSearchCV": lambda: HalvingRandomSearchCV(
        LogisticRegression(), SEARCHED, cv=2, n_candidates=2
    ),
    "RandomizedSearchCV": lambda: RandomizedSearchCV(
        LogisticRegression(), SEARCHED, cv=2, n_iter=2
    ),
}
"""Classes that are not fitted on a table, or that have no case of their own."""

CLASSES = sorted({**IMPORTERS, **COMPOSITES})


def name_of(path: str) -> str:
    """The class without its module."""
    return path.rpartition(".")[2]


def parts(model: Any, depth: int = 0) -> Iterator[Any]:
    """The object and those that it holds, in its attributes and in lists of them."""
    if hasattr(model, "get_params") and not isinstance(model, type):
        yield model
        held: Any = vars(model).values()
    elif isinstance(model, list | tuple):
        held = model
    elif isinstance(model, dict):
        held = model.values()
    elif isinstance(model, np.ndarray) and model.dtype == object:
        held = model.ravel().tolist()
    else:
        return
    if depth < 6:
        for part in held:
            yield from parts(part, depth + 1)


@cache
def cases() -> dict[str, Case]:
    """Class -> the first case that holds it, as the model itself where there is one."""
    found: dict[str, Case] = {}
    for case in ALL:
        found.setdefault(find_class_key(case.make()), case)
    for case in ALL:
        for part in parts(case.make()):
            found.setdefault(find_class_key(part), case)
    return found


def unfitted(path: str) -> Any:
    if name_of(path) in ALONE:
        return ALONE[name_of(path)]()
    return next(p for p in parts(cases()[path].make()) if find_class_key(p) == path)


@pytest.fixture(scope="module", params=CLASSES, ids=name_of)
def whole(request: pytest.FixtureRequest) -> Any:
    """A fitted object of each class; all tests of one class run behind each other."""
    path = request.param
    if name_of(path) in ALONE:
        model = ALONE[name_of(path)]()
        if isinstance(model, FrozenEstimator):
            return FrozenEstimator(model.estimator.fit(X, X[:, 0] > 0))
        words = [{"a": 1.0, "b": "x"}, {"a": 2.0, "b": "y"}]
        return model.fit(words) if "feature_extraction" in path else model.fit(X, X[:, 0] > 0)
    model = Fitted.of(cases()[path]).model
    found = [p for p in parts(model) if find_class_key(p) == path]
    return max(found, key=lambda part: len(vars(part)))  # a fitted copy has more attributes


@pytest.mark.parametrize("path", [p for p in CLASSES if p not in STATELESS], ids=name_of)
def test_an_unfitted_object_is_told_to_fit(path: str) -> None:
    with quiet(), pytest.raises(UnsupportedModelError, match="fit"):
        import_model(unfitted(path))


@pytest.mark.by_day(2)
def test_a_class_of_ones_own_is_refused_by_the_name_of_its_base(whole: Any) -> None:
    model = copy.copy(whole)
    base = type(model)
    methods = ("predict", "transform", "fit_predict", "score_samples")
    name = next((n for n in methods if hasattr(base, n)), "__getattribute__")
    model.__class__ = type("Custom", (base,), {name: getattr(base, name)})
    match = rf"does not import .*Custom; it is a subclass of {base.__name__}\b"
    with quiet(), pytest.raises(UnsupportedModelError, match=match):
        import_model(model)


def test_a_parameter_of_a_newer_version_is_refused_by_its_name(whole: Any) -> None:
    model = copy.copy(whole)
    base = type(model)

    def get_params(self: Any, deep: bool = True) -> dict[str, Any]:
        return {**base.get_params(self, deep), "brand_new": True}

    same = {"__module__": base.__module__, "__qualname__": base.__qualname__}
    model.__class__ = type(base.__name__, (base,), {"get_params": get_params, **same})
    with quiet(), pytest.raises(UnsupportedModelError, match="'brand_new', which sqlml does not"):
        import_model(model)


@pytest.mark.by_day(2)
def test_an_object_without_one_of_its_attributes_is_refused_or_needs_it_not(whole: Any) -> None:
    """Parameters too: an object that another version pickled may lack them."""
    for attribute in list(vars(whole)):
        model = copy.copy(whole)
        delattr(model, attribute)
        with quiet():
            try:
                imported = import_model(model)
            except UnsupportedModelError as error:
                assert str(error)
            else:
                assert isinstance(imported.program, Program)


@pytest.mark.by_day(2)
def test_an_object_whose_arrays_are_cut_short_is_refused_or_needs_them_not(whole: Any) -> None:
    for attribute, value in list(vars(whole).items()):
        if not isinstance(value, np.ndarray | list) or not np.ndim(np.array(value, object)):
            continue
        for broken in (value[:-1], value[:0], None, "x", [value], float("nan")):
            model = copy.copy(whole)
            vars(model)[attribute] = broken
            with quiet(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    assert import_model(model).program.nodes
                except UnsupportedModelError as error:
                    assert str(error)


def double(x: Any) -> Any:
    return 2 * x


class Doubler:
    def __call__(self, x: Any) -> Any:
        return 2 * x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 2 * x,
        double,
        partial(np.power, 2),
        partial(double),
        Doubler(),
        np.vectorize(double),
    ],
    ids=["lambda", "def", "partial", "partial of def", "object", "vectorize"],
)
def test_a_python_function_is_refused(function: Any) -> None:
    x = np.arange(12.0).reshape(6, 2)
    transformer = FunctionTransformer(function).fit(x)
    for model in (
        transformer,
        make_pipeline(StandardScaler(), transformer, LogisticRegression()).fit(x, x[:, 0] > 5),
    ):
        with pytest.raises(UnsupportedModelError, match="function"):
            import_model(model)


@pytest.mark.parametrize("thing", [None, 3, "model.pkl", [], {}, LogisticRegression, np.zeros(3)])
def test_what_is_no_model_is_refused(thing: Any) -> None:
    with pytest.raises(UnsupportedModelError, match="import|fitted"):
        import_model(thing)


def test_what_an_importer_stumbles_over_is_named_and_may_be_sqlmls_fault() -> None:
    model = LogisticRegression().fit(X, X[:, 0] > 0)
    model.coef_ = "a text"
    with pytest.raises(UnsupportedModelError, match="Error.*fit it again.*report") as caught:
        import_model(model)
    cause = caught.value.__cause__
    assert cause is not None and type(cause).__name__ in str(caught.value)


def test_every_class_says_in_the_same_words_that_it_is_not_fitted() -> None:
    inner = LogisticRegression()
    arguments = ((), (inner,), ([("a", StandardScaler()), ("b", inner)],), (inner, {"C": [1]}))
    asked = 0
    for path in (*IMPORTERS, *COMPOSITES):
        module, name = path.rsplit(".", 1)
        made = _made(getattr(importlib.import_module(module), name), arguments)
        if made is None or name in NEVER_FITTED or not hasattr(made, "fit"):
            continue
        with pytest.raises(UnsupportedModelError) as caught:
            import_model(made)
        assert str(caught.value) == f"{name} is not fitted; call its fit() first"
        asked += 1
    assert asked > 180


NEVER_FITTED = frozenset({"FeatureHasher", "HashingVectorizer"})


def _made(cls: Any, arguments: Any) -> Any:
    """An object of the class, which wants none of `arguments` or the first that it takes."""
    if cls in (Pipeline, FeatureUnion):
        return cls(arguments[2][0])
    for given in arguments:
        try:
            return cls(*given)
        except TypeError:
            continue
    return None
