"""Support vector machines: every kernel, both shapes of scores, probabilities, one class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pandas as pd
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

from tests.contract.estimators.case import Case, numbers, real, three, two


def scaled(rows: int, seed: int) -> pd.DataFrame:
    """`numbers` with its wide column made narrow, so that polynomials stay small."""
    frame = numbers(rows, seed)
    return frame.assign(wide=frame["wide"] / 40, whole=frame["whole"] / 10)


KERNELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "rbf": {"kernel": "rbf"},
        "rbf-auto": {"kernel": "rbf", "gamma": "auto"},
        "linear": {"kernel": "linear"},
        "poly": {"kernel": "poly", "coef0": 0.5},
        "poly-5": {"kernel": "poly", "degree": 5, "gamma": 0.1, "coef0": 1.0},
        "poly-0": {"kernel": "poly", "degree": 0},
        "sigmoid": {"kernel": "sigmoid", "gamma": 0.05, "coef0": -0.2},
    }
)


def _with(cls: Callable[..., Any], **parameters: Any) -> Callable[[], Any]:
    return lambda: cls(**parameters)


CASES: tuple[Case, ...] = (
    *(
        Case(f"SVC-{name}", _with(SVC, **k), three, scaled, rows=150, heavy=True)
        for name, k in KERNELS.items()
        if name != "poly-0"
    ),
    Case("SVC-raw", SVC, three, rows=150, labels=("string", "int64"), heavy=True),
    Case("SVC-two", SVC, two, rows=150, labels=("string", "bool", "float64"), heavy=True),
    Case("SVC-one-vs-one", lambda: SVC(decision_function_shape="ovo"), three, rows=120, heavy=True),
    Case("SVC-break-ties", lambda: SVC(break_ties=True), three, rows=120, heavy=True),
    Case("SVC-weights", lambda: SVC(class_weight="balanced", C=10), three, rows=120, heavy=True),
    Case(
        "SVC-probability",
        lambda: SVC(probability=True, random_state=0),
        three,
        scaled,
        rows=120,
        heavy=True,
    ),
    Case(
        "SVC-probability-two",
        lambda: SVC(probability=True, random_state=0, kernel="linear"),
        two,
        scaled,
        rows=120,
        heavy=True,
    ),
    Case("NuSVC", lambda: NuSVC(nu=0.3), three, scaled, rows=120, heavy=True),
    Case(
        "NuSVC-probability",
        lambda: NuSVC(nu=0.3, probability=True, random_state=0),
        three,
        scaled,
        rows=120,
        heavy=True,
    ),
    *(
        Case(f"SVR-{name}", _with(SVR, **k), real, scaled, rows=120, heavy=True)
        for name, k in KERNELS.items()
        if name != "poly-5"
    ),
    Case(  # its fifth powers nearly cancel in one row of 10^4
        "SVR-poly-5", _with(SVR, **KERNELS["poly-5"]), real, scaled, rows=120, heavy=True, rtol=1e-8
    ),
    Case("NuSVR", NuSVR, real, scaled, rows=120, heavy=True),
    Case("NuSVR-linear", lambda: NuSVR(kernel="linear"), real, scaled, rows=120, heavy=True),
    Case("OneClassSVM", lambda: OneClassSVM(nu=0.2), None, scaled, rows=120, heavy=True),
    Case(
        "OneClassSVM-sigmoid",
        lambda: OneClassSVM(kernel="sigmoid", gamma=0.02),
        None,
        scaled,
        rows=120,
        heavy=True,
    ),
)
