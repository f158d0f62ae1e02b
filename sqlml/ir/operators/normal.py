"""The normal distribution: its distribution function and its inverse.

Distribution function by libm's erfc. Inverse by algorithm AS 241 (PPND16): M. J. Wichura, "The
percentage points of the normal distribution", Applied Statistics 37 (1988), relative error below
1e-15.
"""

from __future__ import annotations

import math

import numpy as np

from sqlml.types import Array

_erfc = np.frompyfunc(math.erfc, 1, 1)

_MIDDLE = (
    (
        3.3871328727963666080,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
"""|p - 0.5| <= 0.425: coefficients of the numerator and the denominator, lowest power first."""

_OUTER = (
    (
        1.42343711074968357734,
        4.63033784615654529590,
        5.76949722146069140550,
        3.64784832476320460504,
        1.27045825245236838258,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187,
        1.67638483018380384940,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
"""sqrt(-log(tail)) <= 5."""

_TAIL = (
    (
        6.65790464350110377720,
        5.46378491116411436990,
        1.78482653991729133580,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)
"""Beyond that."""


def ndtr(x: Array) -> Array:
    """P(N <= x) of the standard normal distribution, in the dtype of `x`; NaN stays NaN.

    >>> ndtr(np.array([-np.inf, 0.0]))
    array([0. , 0.5])
    """
    wide = -np.asarray(x, np.float64) * math.sqrt(0.5)
    twice = np.asarray(_erfc(wide), np.float64)
    return (0.5 * twice).astype(x.dtype)


def ndtri(p: Array) -> Array:
    """The x with ndtr(x) = p, in the dtype of `p`; NaN outside [0, 1].

    >>> ndtri(np.array([0.0, 0.5, 2.0]))
    array([-inf,   0.,  nan])
    """
    wide = np.asarray(p, np.float64)
    centred = wide - 0.5
    with np.errstate(all="ignore"):
        tail = np.minimum(wide, 1 - wide)
        r = np.sqrt(-np.log(tail))
        outside = np.where(r <= 5, _ratio(_OUTER, r - 1.6), _ratio(_TAIL, r - 5))
        outside = np.where(tail == 0, np.inf, outside)
        middle = centred * _ratio(_MIDDLE, 0.180625 - centred * centred)
        x = np.where(np.abs(centred) <= 0.425, middle, np.copysign(outside, centred))
    return np.where((wide < 0) | (wide > 1), np.nan, x).astype(p.dtype)


def _ratio(of: tuple[tuple[float, ...], tuple[float, ...]], x: Array) -> Array:
    above, below = (_polynomial(coefficients, x) for coefficients in of)
    return above / below


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    value = np.full(x.shape, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + coefficient
    return value
