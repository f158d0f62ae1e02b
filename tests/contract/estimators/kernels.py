"""Kernel machines, approximate kernels and Gaussian processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from sklearn.decomposition import KernelPCA
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp
from sklearn.kernel_approximation import (
    AdditiveChi2Sampler,
    Nystroem,
    PolynomialCountSketch,
    RBFSampler,
    SkewedChi2Sampler,
)
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import KernelCenterer

from tests.contract.estimators.case import Case, counts, positive, real, three, two
from tests.contract.estimators.neighbors import pair, scaled


def square(rows: int, seed: int) -> pd.DataFrame:
    """Eight columns, as kernel values of eight points."""
    made = np.random.default_rng(seed).normal(size=(rows, 8))
    return pd.DataFrame(made, columns=list("abcdefgh"))


def varied(rows: int, seed: int) -> pd.DataFrame:
    """`scaled` without its constant column, which a centred kernel does not see at all."""
    return scaled(rows, seed).drop(columns="constant")


def single(rows: int, seed: int) -> pd.DataFrame:
    """One column."""
    return scaled(rows, seed)[["wide"]]


KERNELS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "linear": {},
        "rbf": {"gamma": 0.3},
        "poly": {"degree": 2, "coef0": 0.5},
        "polynomial": {"degree": 3, "gamma": 0.2},
        "laplacian": {"gamma": 0.1},
        "sigmoid": {"gamma": 0.05, "coef0": 0.1},
        "cosine": {},
    }
)

PROCESSES: Mapping[str, Any] = MappingProxyType(
    {
        "rbf": gp.ConstantKernel(2.0) * gp.RBF(1.5) + gp.WhiteKernel(0.1),
        "ard": gp.RBF([1.0, 2.0, 0.5, 1.0, 3.0, 1.0]) + gp.WhiteKernel(0.1),
        "matern-half": gp.Matern(1.5, nu=0.5) + gp.WhiteKernel(0.1),
        "matern-1.5": gp.Matern(1.5, nu=1.5) + gp.WhiteKernel(0.1),
        "matern-2.5": gp.Matern([1.0, 2, 1, 1, 2, 1], nu=2.5) + gp.WhiteKernel(0.1),
        "matern-inf": gp.Matern(1.5, nu=np.inf) + gp.WhiteKernel(0.1),
        "rational": gp.RationalQuadratic(1.2, 0.7) + gp.WhiteKernel(0.1),
        "dot": gp.DotProduct(1.3) ** 2 + gp.WhiteKernel(0.5),
        "pairwise": gp.PairwiseKernel(0.2, metric="laplacian") + gp.WhiteKernel(0.1),
        "constant": gp.ConstantKernel(0.5) + gp.WhiteKernel(0.1),
    }
)


def _with(cls: Callable[..., Any], *args: Any, **parameters: Any) -> Callable[[], Any]:
    return lambda: cls(*args, **parameters)


CASES: tuple[Case, ...] = (
    *(
        Case(
            f"KernelRidge-{kernel}",
            _with(KernelRidge, alpha=0.5, kernel=kernel, **given),
            real,
            scaled,
            rows=100,
        )
        for kernel, given in KERNELS.items()
    ),
    Case("KernelRidge-pair", _with(KernelRidge, kernel="rbf"), pair, scaled, rows=100),
    Case(
        "KernelRidge-power",
        _with(KernelRidge, kernel="poly", degree=1.5),
        real,
        positive,
        rows=80,
        rtol=1e-7,  # large terms that cancel: the source's own sums differ by that in other batches
    ),
    *(
        Case(
            f"KernelPCA-{kernel}",
            _with(KernelPCA, 3, kernel=kernel, **given),
            None,
            varied,
            rows=80,
        )
        for kernel, given in KERNELS.items()
        if kernel not in ("polynomial", "laplacian")
    ),
    Case("KernelCenterer", KernelCenterer, None, square, rows=8),
    *(
        Case(
            f"Nystroem-{kernel}-{number}",
            _with(Nystroem, kernel=kernel, n_components=12, random_state=0, **given),
            None,
            scaled,
            rows=80,
            # divided by the roots of small eigenvalues
            rtol=1e-6 if kernel == "cosine" else 1e-9,
        )
        for number, (kernel, given) in enumerate(
            (*list(KERNELS.items())[1:], ("rbf", {}), ("poly", {}))
        )
    ),
    Case("RBFSampler", _with(RBFSampler, n_components=9, random_state=0), None, scaled),
    Case("RBFSampler-scale", _with(RBFSampler, gamma="scale", random_state=1), None, scaled),
    Case("CountSketch", _with(PolynomialCountSketch, random_state=0), None, scaled, rows=80),
    Case(
        "CountSketch-3",
        _with(PolynomialCountSketch, degree=3, n_components=21, coef0=2, gamma=0.5, random_state=0),
        None,
        scaled,
        rows=80,
    ),
    Case("SkewedChi2", _with(SkewedChi2Sampler, n_components=9, random_state=0), None, positive),
    Case("AdditiveChi2", AdditiveChi2Sampler, None, counts),
    Case("AdditiveChi2-1", _with(AdditiveChi2Sampler, sample_steps=1), None, positive),
    Case(
        "AdditiveChi2-4",
        _with(AdditiveChi2Sampler, sample_steps=4, sample_interval=0.3),
        None,
        positive,
    ),
    *(
        Case(
            f"GP-{name}",
            _with(GaussianProcessRegressor, kernel, optimizer=None),
            real,
            scaled,
            rows=60,
        )
        for name, kernel in PROCESSES.items()
    ),
    Case(
        "GP-periodic",
        _with(
            GaussianProcessRegressor,
            gp.ExpSineSquared(1.2, 3.0) + gp.WhiteKernel(0.3),
            optimizer=None,
        ),
        real,
        single,
        rows=60,
    ),
    Case("GP-default", _with(GaussianProcessRegressor, alpha=0.1), real, scaled, rows=60),
    Case(
        "GP-pair",
        _with(
            GaussianProcessRegressor,
            gp.RBF() + gp.WhiteKernel(),
            normalize_y=True,
            n_restarts_optimizer=1,
            random_state=0,
        ),
        pair,
        scaled,
        rows=60,
    ),
    Case("GPC-two", GaussianProcessClassifier, two, scaled, rows=60),
    Case(
        "GPC-three",
        _with(GaussianProcessClassifier, 1.5 * gp.RBF(1.3), optimizer=None),
        three,
        scaled,
        rows=60,
    ),
    Case(
        "GPC-dot",
        _with(GaussianProcessClassifier, gp.DotProduct(), optimizer=None),
        two,
        scaled,
        rows=60,
    ),
)
