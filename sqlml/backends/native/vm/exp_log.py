"""exp and log as plain arithmetic, so that a loop over rows becomes vector instructions.

A call of the C library for each number takes ten times as long. Each function is within one unit
in the last place of the true value, and gives the same number in every place of a batch (there is
no fused multiply-add in it). Methods: W. Cody and W. Waite, "Software Manual for the Elementary
Functions" (1980), chapters 5 and 6; the coefficients of log are those of
fdlibm (`e_log.c`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from sqlml.backends.native.jit.helpers import called

_MAGIC = 6755399441055744.0
"""1.5 * 2^52: a number added to it is rounded to a whole one, which is then its last bits."""

_MAGIC_BITS = int(np.float64(_MAGIC).view(np.int64))
_LOG2_E = 1.0 / math.log(2.0)
_LN2_HIGH = float(np.int64(0x3FE62E42FEE00000).view(np.float64))
_LN2_LOW = 1.90821492927058770002e-10
_F = [float(Fraction(1, math.factorial(k))) for k in range(14)]
_E2, _E3, _E4, _E5, _E6, _E7, _E8, _E9, _E10, _E11, _E12, _E13 = _F[2:]
_HALF_SQRT = int(np.float64(math.sqrt(0.5)).view(np.int64))
_L1, _L2, _L3, _L4 = (
    0.666666666666673513,
    0.3999999999940941908,
    0.2857142874366239149,
    0.22222198432149784,
)
_L5, _L6, _L7 = 0.1818357216161805012, 0.1531383769920937332, 0.1479819860511658591


@called
def exponential(x: Any) -> Any:
    """exp(x) of a float64."""
    bound = min(max(x, -746.0), 710.0) if x == x else 0.0
    shifted = bound * _LOG2_E + _MAGIC
    k = np.float64(shifted).view(np.int64) - _MAGIC_BITS
    whole = shifted - _MAGIC
    r = (bound - whole * _LN2_HIGH) - whole * _LN2_LOW
    q = _E12 + r * _E13
    q = _E11 + r * q
    q = _E10 + r * q
    q = _E9 + r * q
    q = _E8 + r * q
    q = _E7 + r * q
    q = _E6 + r * q
    q = _E5 + r * q
    q = _E4 + r * q
    q = _E3 + r * q
    q = _E2 + r * q
    made = 1.0 + (r + (r * r) * q)
    # 2^k in two factors: the result may be subnormal, or infinite.
    half = k >> 1
    first = np.int64((half + 1023) << 52).view(np.float64)
    second = np.int64((k - half + 1023) << 52).view(np.float64)
    made = (made * first) * second
    return made if x == x else x


@called
def logarithm(x: Any, shift: Any) -> Any:
    """log(shift + x) of a float64, with shift 0 or 1, without losing the digits of a small x."""
    whole = shift + x
    lost = x - (whole - shift)
    tiny = whole < 2.2250738585072014e-308
    bits = np.float64(whole * 18014398509481984.0 if tiny else whole).view(np.int64)
    k = (bits - _HALF_SQRT) >> 52
    f = np.int64(bits - (k << 52)).view(np.float64) - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    odd = w * (_L2 + w * (_L4 + w * _L6))
    even = z * (_L1 + w * (_L3 + w * (_L5 + w * _L7)))
    half = 0.5 * f * f
    e = np.float64(k) - (54.0 if tiny else 0.0)
    made: Any = e * _LN2_HIGH - ((half - (s * (half + (odd + even)) + e * _LN2_LOW)) - f)
    made = made + lost / whole
    made = made if whole < np.inf else whole
    made = made if whole > 0.0 else np.nan
    return made if whole != 0.0 else -np.inf
