"""Tables with the shapes of those that Hummingbird's paper scores (table 7), made from seeds.

What is kept of a table: its number of columns, their kinds and distributions, the number of
classes and how often each occurs. The target depends on a few columns together, with noise, so
that trees have something to find at every depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
Target = npt.NDArray[np.float64] | npt.NDArray[np.int64]
Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class Shape:
    """features: of the table. shares: how often each class occurs; none for a regression."""

    features: int
    shares: tuple[float, ...]
    make: Callable[[Random, int, int], npt.NDArray[np.float64]]

    @property
    def classifies(self) -> bool:
        """Whether the target is a class."""
        return bool(self.shares)


def _components(rng: Random, rows: int, features: int) -> npt.NDArray[np.float64]:
    """Principal components of card payments: less and less varied, with heavy tails."""
    return rng.standard_t(4, (rows, features)) * np.linspace(2.0, 0.3, features)


def _timbre(rng: Random, rows: int, features: int) -> npt.NDArray[np.float64]:
    """Averages and covariances of sound: correlated, of very different sizes."""
    hidden = rng.normal(size=(rows, 12)) @ np.sin(np.arange(12 * features).reshape(12, features))
    x = (hidden + rng.normal(size=(rows, features))) * np.linspace(5.0, 300.0, features)
    return np.asarray(x)


def _terrain(rng: Random, rows: int, features: int) -> npt.NDArray[np.float64]:
    """Ten whole numbers about a place, then two one-hot encoded categories of 4 and the rest."""
    x = np.zeros((rows, features))
    x[:, :10] = np.rint(rng.gamma(4.0, 1.0, (rows, 10)) * np.linspace(700.0, 5.0, 10))
    everywhere = np.arange(rows)
    x[everywhere, 10 + rng.integers(0, 4, rows)] = 1.0
    soil = np.minimum(rng.geometric(0.12, rows) - 1, features - 15)
    x[everywhere, 14 + soil] = 1.0
    return x


def _sphere(rng: Random, rows: int, features: int) -> npt.NDArray[np.float64]:
    """Dense rows of length one."""
    x = rng.normal(size=(rows, features))
    return np.asarray(x / np.sqrt((x * x).sum(axis=1, keepdims=True)))


def _collisions(rng: Random, rows: int, features: int) -> npt.NDArray[np.float64]:
    """Momenta, angles and masses of particles: positive with long tails, beside uniform ones."""
    x = rng.lognormal(0.0, 0.5, (rows, features))
    x[:, 1::3] = rng.uniform(-2.5, 2.5, x[:, 1::3].shape)
    x[:, 2::3] = rng.uniform(-np.pi, np.pi, x[:, 2::3].shape)
    return x


TABLES: Mapping[str, Shape] = {
    "fraud": Shape(28, (0.99827, 0.00173), _components),
    "year": Shape(90, (), _timbre),
    "covtype": Shape(54, (0.365, 0.488, 0.062, 0.005, 0.016, 0.030, 0.034), _terrain),
    "epsilon": Shape(2000, (0.5, 0.5), _sphere),
    "higgs": Shape(28, (0.47, 0.53), _collisions),
}


LEAST = 10
"""How often a class occurs at least, in however few rows: a model is to know all of them."""


def table(name: str, rows: int, seed: int) -> tuple[Matrix, Target]:
    """Rows of a table, (rows, features) in C order, and their target, (rows,)."""
    return shaped(TABLES[name], rows, seed)


def shaped(shape: Shape, rows: int, seed: int) -> tuple[Matrix, Target]:
    """Rows of any shape: `table` for one that has no name."""
    rng = np.random.default_rng([seed, shape.features])
    x = shape.make(rng, rows, shape.features)
    signal = _signal(x) + rng.normal(scale=0.3, size=rows)
    if not shape.classifies:
        return x.astype(np.float32), np.rint(2011.0 - 8.0 * np.exp(-signal / 2.0))
    order = np.argsort(np.argsort(signal, kind="stable"), kind="stable")
    counts = np.maximum(np.asarray(shape.shares) * rows, LEAST)
    ends = np.cumsum(counts / counts.sum()) * rows
    classes = np.searchsorted(ends, order, side="right").clip(max=len(shape.shares) - 1)
    return x.astype(np.float32), classes.astype(np.int64)


def _signal(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return products and bends of up to a dozen columns, for the target; NaN counts as 0."""
    x = np.nan_to_num(x)
    spread = x.std(axis=0)
    z = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    at = [i * z.shape[1] // 12 for i in range(12)]
    signal = z[:, at[0]] * z[:, at[1]] + np.sin(2 * z[:, at[2]]) + np.abs(z[:, at[3]])
    signal = signal + 0.7 * z[:, at[4]] * (z[:, at[5]] > 0) - 0.5 * np.maximum(z[:, at[6]], 0)
    bends = [np.cos(z[:, at[i]] + i) for i in range(7, 12)]
    return np.asarray(signal + 0.4 * np.sum(bends, axis=0))
