"""`hash_categories`: CityHash64, as in Google's city.cc, of strings and of digits of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sqlml.backends.native.jit.specialise import compiled_helper, reads, specialise, writes
from sqlml.backends.native.kernel_calls import MEMORY, Call, RowKernel, Rows
from sqlml.ir.operators.categories import MAX_EXACT_INTEGER
from sqlml.ir.utf8_column import TextColumn
from sqlml.types import Array

_U = np.uint64
_K0, _K1 = _U(0xC3A5C85C97CB3127), _U(0xB492B66FBE98F273)
_K2, _K3 = _U(0x9AE16A3B2F90404F), _U(0xC949D7C7509E6557)
_MUL = _U(0x9DDFEA08EB382D69)
_LOW, _SIGN, _OVER = _U(0xFFFFFFFF), 1 << 31, 1 << 32
_MAX_INTEGER = float(MAX_EXACT_INTEGER)
_DIGITS = 24
"""Capacity for the digits and the sign of an integer."""


def make_text_hasher() -> Callable[[Any], Array]:
    """Return a function that hashes strings (n, 1) to float64 (n, 1), and NULL to NaN."""
    kernel = _compile_text_kernel()

    def hash_values(values: Any) -> Array:
        x = TextColumn.from_values(values)
        out = np.empty((len(x), 1))
        kernel(*map(np.ascontiguousarray, (x.data, x.start, x.stop)), out)
        out[x.missing] = np.nan
        return out

    return hash_values


def make_number_hash_kernel() -> RowKernel:
    """Return a kernel that hashes the digits of float64 x (n, 1); a fraction becomes NaN."""
    double = np.dtype(np.float64)
    return RowKernel.of(hash_numbers, double, (), 1, double)


def call_hash_texts(start: Rows, stop: Rows, out: Rows) -> Call:
    return Call(_compile_text_kernel(), (MEMORY, start, stop, out))


def _compile_text_kernel() -> Callable[..., Any]:
    signature = (reads(np.uint8, 1, "C"), *[reads(np.int64, 1, "C")] * 2, writes(np.float64, 2))
    return specialise(hash_texts, signature)


@compiled_helper
def _read_8(data: Any, start: Any) -> Any:
    """Read 8 bytes in little-endian order."""
    value = _U(data[start + 7])
    for i in range(6, -1, -1):
        value = (value << _U(8)) | _U(data[start + i])
    return value


@compiled_helper
def _read_4(data: Any, start: Any) -> Any:
    """Read 4 bytes in little-endian order."""
    value = _U(data[start + 3])
    for i in range(2, -1, -1):
        value = (value << _U(8)) | _U(data[start + i])
    return value


@compiled_helper
def _rotate(value: Any, shift: Any) -> Any:
    return (value >> shift) | (value << (_U(64) - shift))


@compiled_helper
def _shift_mix(value: Any) -> Any:
    return value ^ (value >> _U(47))


@compiled_helper
def _hash_pair(u: Any, v: Any) -> Any:
    """Return `HashLen16` of city.cc."""
    a = _shift_mix((u ^ v) * _MUL)
    return _shift_mix((v ^ a) * _MUL) * _MUL


@compiled_helper
def _hash_up_to_16(data: Any, start: Any, size: Any) -> Any:
    length = _U(size)
    if size > 8:
        a, b = _read_8(data, start), _read_8(data, start + size - 8)
        return _hash_pair(a, _rotate(b + length, length)) ^ b
    if size >= 4:
        return _hash_pair(length + (_read_4(data, start) << _U(3)), _read_4(data, start + size - 4))
    if size > 0:
        y = _U(data[start]) + (_U(data[start + (size >> 1)]) << _U(8))
        z = length + (_U(data[start + size - 1]) << _U(2))
        return _shift_mix(y * _K2 ^ z * _K3) * _K2
    return _K2


@compiled_helper
def _hash_up_to_32(data: Any, start: Any, size: Any) -> Any:
    a, b = _read_8(data, start) * _K1, _read_8(data, start + 8)
    c, d = _read_8(data, start + size - 8) * _K2, _read_8(data, start + size - 16) * _K0
    u = _rotate(a - b, _U(43)) + _rotate(c, _U(30)) + d
    return _hash_pair(u, a + _rotate(b ^ _K3, _U(20)) - c + _U(size))


@compiled_helper
def _hash_half(first: Any, z: Any, second: Any, third: Any) -> Any:
    """Return vf and vs, or wf and ws, of `HashLen33to64` in city.cc."""
    a, b, c = first, _rotate(first + z, _U(52)), _rotate(first, _U(37))
    a += second
    c += _rotate(a, _U(7))
    a += third
    return a + z, b + _rotate(a, _U(31)) + c


@compiled_helper
def _hash_up_to_64(data: Any, start: Any, size: Any) -> Any:
    last = start + size
    front = _read_8(data, start) + (_U(size) + _read_8(data, last - 16)) * _K0
    vf, vs = _hash_half(
        front, _read_8(data, start + 24), _read_8(data, start + 8), _read_8(data, start + 16)
    )
    back = _read_8(data, start + 16) + _read_8(data, last - 32)
    wf, ws = _hash_half(
        back, _read_8(data, last - 8), _read_8(data, last - 24), _read_8(data, last - 16)
    )
    r = _shift_mix((vf + ws) * _K2 + (wf + vs) * _K0)
    return _shift_mix(r * _K0 + vs) * _K2


@compiled_helper
def _hash_32_bytes(data: Any, start: Any, a: Any, b: Any) -> Any:
    """Return `WeakHashLen32WithSeeds` of city.cc; a and b are the seeds."""
    a += _read_8(data, start)
    z = _read_8(data, start + 24)
    b = _rotate(b + a + z, _U(21))
    c = a
    a += _read_8(data, start + 8) + _read_8(data, start + 16)
    b += _rotate(a, _U(44))
    return a + z, b + c


@compiled_helper
def _hash_longer(data: Any, start: Any, size: Any) -> Any:
    last, length = start + size, _U(size)
    x, y, z = _read_8(data, start), _read_8(data, last - 16) ^ _K1, _read_8(data, last - 56) ^ _K0
    v0, v1 = _hash_32_bytes(data, last - 64, length, y)
    w0, w1 = _hash_32_bytes(data, last - 32, length * _K1, _K0)
    z += _shift_mix(v1) * _K1
    x = _rotate(z + x, _U(39)) * _K1
    y = _rotate(y, _U(33)) * _K1
    for i in range(start, start + ((size - 1) & ~63), 64):
        x = _rotate(x + y + v0 + _read_8(data, i + 16), _U(37)) * _K1
        y = _rotate(y + v1 + _read_8(data, i + 48), _U(42)) * _K1
        x ^= w1
        y ^= v0
        z = _rotate(z ^ w0, _U(33))
        v0, v1 = _hash_32_bytes(data, i, v1 * _K1, x + w0)
        w0, w1 = _hash_32_bytes(data, i + 32, z + w1, y)
        z, x = x, z
    return _hash_pair(_hash_pair(v0, w0) + _shift_mix(y) * _K1 + z, _hash_pair(v1, w1) + x)


@compiled_helper
def _signed_hash(data: Any, start: Any, size: Any) -> Any:
    """Return the lower 32 bits of the hash of data[start:start + size] as a signed number."""
    if size <= 16:
        hash_value = _hash_up_to_16(data, start, size)
    elif size <= 32:
        hash_value = _hash_up_to_32(data, start, size)
    elif size <= 64:
        hash_value = _hash_up_to_64(data, start, size)
    else:
        hash_value = _hash_longer(data, start, size)
    low = np.int64(hash_value & _LOW)
    return np.float64(low - _OVER if low >= _SIGN else low)


def hash_texts(memory: Any, start: Any, stop: Any, out: Any) -> None:
    for r in range(out.shape[0]):
        out[r, 0] = _signed_hash(memory, start[r], stop[r] - start[r])


def hash_numbers(x: Any, out: Any) -> None:
    """Write the hash of each number's digits to out (n, 1); fractions become NaN."""
    digits = np.empty(_DIGITS, np.uint8)
    for r in range(out.shape[0]):
        value = x[r, 0]
        if not (-_MAX_INTEGER <= value <= _MAX_INTEGER) or np.trunc(value) != value:
            out[r, 0] = np.nan
            continue
        remaining, first_digit = np.int64(abs(value)), _DIGITS
        while remaining > 0 or first_digit == _DIGITS:
            first_digit -= 1
            digits[first_digit] = np.uint8(48 + remaining % 10)
            remaining //= 10
        if value < 0:
            first_digit -= 1
            digits[first_digit] = np.uint8(45)
        out[r, 0] = _signed_hash(digits, first_digit, _DIGITS - first_digit)
