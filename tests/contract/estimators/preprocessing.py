"""Transformers of numbers, categories and labels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    LabelBinarizer,
    LabelEncoder,
    Normalizer,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    TargetEncoder,
)

from tests.contract.estimators.case import (
    Case,
    Data,
    Target,
    counts,
    gaps,
    numbers,
    positive,
    real,
    three,
    two,
)


def above_zero(rows: int, seed: int) -> pd.DataFrame:
    """Positive numbers: box-cox takes no zero."""
    frame = positive(rows, seed).drop(columns="constant") + 0.125
    return frame.mask(np.random.default_rng(seed + 2).random(frame.shape) < 0.05)


def varying(rows: int, seed: int) -> pd.DataFrame:
    """`numbers` without the constant column, on which no spline can stand."""
    return numbers(rows, seed).drop(columns="constant")


def bounded(rows: int, seed: int) -> pd.DataFrame:
    """Columns that reach neither beyond -1 nor beyond 1, which both occur."""
    made = np.random.default_rng(seed).uniform(-1, 1, (rows, 2))
    made[:2] = np.array([[-1.0], [1.0]])[: len(made)]
    return pd.DataFrame(made, columns=["a", "b"])


def zeros(rows: int, seed: int) -> pd.DataFrame:
    """Rows of which some are all zero, or nearly."""
    frame = varying(rows, seed)
    frame.iloc[::7] = 0.0
    frame.iloc[1::7] *= 1e-18
    return frame


def categories(rows: int, seed: int) -> pd.DataFrame:
    """A column of strings and two of numbers as categories, one with gaps; later seeds bring
    categories that seed 0 never has."""
    rng = np.random.default_rng(seed)
    words = ["a", "b", "c", "", "Zürich"] + (["new"] if seed else [])
    return pd.DataFrame(
        {
            "tied": rng.integers(0, 4 + (seed > 0), rows).astype(float),
            "gaps": np.where(rng.random(rows) < 0.2, np.nan, rng.integers(0, 3, rows)),
            "word": rng.choice(words, rows),
        }
    )


def of_numbers(target: Target) -> Target:
    """The target of the columns that are numbers."""
    return lambda table, seed: target(table.select_dtypes("number"), seed)


def labels(kind: str) -> Data:
    """One column as a target would be, named as sqlml names it where a model knows no names."""

    def make(rows: int, seed: int) -> pd.DataFrame:
        codes = np.random.default_rng(seed).integers(0, 2 if kind == "two" else 4, rows)
        codes[:4] = np.arange(4)[: len(codes)] % (2 if kind == "two" else 4)
        made = np.array([3.5, -1.0, 7.0, 9.0])[codes]
        if kind == "string":
            return pd.DataFrame({"x0": np.array(["b", "a", "", "Zürich"], object)[codes]})
        return pd.DataFrame({"x0": made if kind == "float" else np.round(made)})

    return make


def spline(name: str, make: Callable[[], SplineTransformer], data: Data = varying) -> Case:
    return Case(f"SplineTransformer {name}", make, data=data, rtol=1e-12, torch_rtol=1e-10)


UFUNCS = (
    *(np.abs, np.arcsinh, np.arctan, np.cbrt, np.ceil, np.cos, np.deg2rad, np.exp2, np.floor),
    *(np.isfinite, np.isinf, np.isnan, np.log1p, np.nan_to_num, np.negative, np.rint, np.round),
    *(np.sign, np.sin, np.sqrt, np.square, np.tan, np.tanh, np.trunc, np.reciprocal, np.log),
    *(np.log2, np.log10, np.expm1, np.sinh, np.cosh, np.arcsin, np.arccos, np.arctanh),
    *(np.arccosh, np.exp, np.degrees, np.logical_not, np.positive, np.fabs),
)

BITS = frozenset({"transform"})

CASES: tuple[Case, ...] = (
    Case("Binarizer", lambda: Binarizer(), bits=BITS),
    Case("Binarizer above", lambda: Binarizer(threshold=2.5), bits=BITS),
    *(
        Case(f"KBinsDiscretizer {strategy} {encode}", make, data=data, bits=BITS)
        for strategy in ("uniform", "quantile", "kmeans")
        for encode, data in (("ordinal", numbers), ("onehot", varying), ("onehot-dense", counts))
        for make in [
            lambda s=strategy, e=encode: KBinsDiscretizer(
                n_bins=[3, 4, 5, 2, 3, 4][: 6 if e == "ordinal" else 5], strategy=s, encode=e
            )
        ]
    ),
    Case(
        "KBinsDiscretizer float32",
        lambda: KBinsDiscretizer(4, encode="ordinal", dtype=np.float32),
        bits=BITS,
    ),
    *(
        Case(f"Normalizer {norm}", lambda n=norm: Normalizer(n), data=zeros)
        for norm in ("l1", "l2", "max")
    ),
    Case("PolynomialFeatures", lambda: PolynomialFeatures(), bits=BITS),
    Case(
        "PolynomialFeatures to 4 F",
        lambda: PolynomialFeatures(4, include_bias=False, order="F"),
        bits=BITS,
    ),
    Case(
        "PolynomialFeatures interactions",
        lambda: PolynomialFeatures((2, 3), interaction_only=True),
        bits=BITS,
    ),
    Case(
        "PolynomialFeatures 3 to 3",
        lambda: PolynomialFeatures((3, 3), include_bias=False),
        bits=BITS,
    ),
    Case("PolynomialFeatures 0", lambda: PolynomialFeatures(0), bits=BITS),
    Case(
        "PolynomialFeatures interactions of all",
        lambda: PolynomialFeatures(9, interaction_only=True),
        bits=BITS,
    ),
    *(
        spline(
            f"{outside} degree {degree}",
            lambda o=outside, d=degree: SplineTransformer(
                4,
                degree=d,
                extrapolation=o,
                include_bias=d != 2,
                knots="quantile" if d == 1 else "uniform",
            ),
        )
        for outside in ("constant", "linear", "continue", "periodic")
        for degree in (1, 2, 3)
    ),
    spline("error", lambda: SplineTransformer(extrapolation="error"), bounded),
    spline("linear degree 0", lambda: SplineTransformer(degree=0, extrapolation="linear")),
    spline("continue degree 0", lambda: SplineTransformer(degree=0, extrapolation="continue")),
    spline("periodic degree 0", lambda: SplineTransformer(degree=0, extrapolation="periodic")),
    spline("constant degree 0", lambda: SplineTransformer(degree=0), bounded),
    spline(
        "own knots",
        lambda: SplineTransformer(knots=np.array([[-1, -2], [0, 0.0], [0.25, 1]]), degree=2),
        bounded,
    ),
    spline("sparse", lambda: SplineTransformer(sparse_output=True)),
    spline(
        "sparse periodic", lambda: SplineTransformer(sparse_output=True, extrapolation="periodic")
    ),
    Case("PowerTransformer", lambda: PowerTransformer(), data=gaps),
    Case("PowerTransformer raw", lambda: PowerTransformer(standardize=False), data=gaps),
    Case("PowerTransformer box-cox", lambda: PowerTransformer("box-cox"), data=above_zero),
    Case(
        "PowerTransformer box-cox raw",
        lambda: PowerTransformer("box-cox", standardize=False),
        data=above_zero,
    ),
    Case(
        "QuantileTransformer",
        lambda: QuantileTransformer(n_quantiles=50),
        data=gaps,
        bits=BITS,
    ),
    Case(
        "QuantileTransformer normal",
        lambda: QuantileTransformer(n_quantiles=300, output_distribution="normal"),
        data=gaps,
    ),
    Case(
        "QuantileTransformer of counts",
        lambda: QuantileTransformer(n_quantiles=20, output_distribution="normal"),
        data=counts,
    ),
    Case("QuantileTransformer one", lambda: QuantileTransformer(n_quantiles=1), data=gaps),
    Case("TargetEncoder", lambda: TargetEncoder(), of_numbers(two), data=categories, bits=BITS),
    Case(
        "TargetEncoder three",
        lambda: TargetEncoder(smooth=3.0),
        of_numbers(three),
        data=categories,
        bits=BITS,
    ),
    Case(
        "TargetEncoder real",
        lambda: TargetEncoder(target_type="continuous"),
        of_numbers(real),
        data=categories,
        bits=BITS,
    ),
    Case(
        "TargetEncoder first",
        lambda: make_pipeline(TargetEncoder(cv=3), LogisticRegression()),
        of_numbers(three),
        data=categories,
    ),
    Case("LabelEncoder", lambda: LabelEncoder(), data=labels("string"), bits=BITS),
    Case("LabelEncoder float", lambda: LabelEncoder(), data=labels("float"), bits=BITS),
    Case("LabelBinarizer", lambda: LabelBinarizer(), data=labels("string"), bits=BITS),
    Case(
        "LabelBinarizer own labels",
        lambda: LabelBinarizer(neg_label=-2, pos_label=0),
        data=labels("whole"),
        bits=BITS,
    ),
    Case("LabelBinarizer sparse", lambda: LabelBinarizer(sparse_output=True), data=labels("whole")),
    Case("LabelBinarizer two", lambda: LabelBinarizer(neg_label=-1), data=labels("two")),
    Case("FunctionTransformer", lambda: FunctionTransformer(), bits=BITS),
    Case("FunctionTransformer checked", lambda: FunctionTransformer(validate=True), bits=BITS),
    Case(
        "FunctionTransformer log1p checked",
        lambda: FunctionTransformer(np.log1p, validate=True, inverse_func=np.expm1, kw_args={}),
        data=positive,
    ),
    *(
        Case(
            f"FunctionTransformer {functions[0].__name__} and more",
            lambda f=functions: make_union(*map(FunctionTransformer, f)),
            data=gaps,
        )
        for functions in (UFUNCS[0::4], UFUNCS[1::4], UFUNCS[2::4], UFUNCS[3::4])
    ),
)
