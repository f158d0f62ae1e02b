"""Hash functions of text: CityHash64 for CatBoost's categories, MurmurHash3 for scikit-learn.

CityHash64 is version 1.0 (G. Pike and J. Alakuijala, 2011), which hashes differently from later
versions; variables are named as in its code. MurmurHash3_x86_32 is Austin Appleby's.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFFFFFFFFFF
_K0 = 0xC3A5C85C97CB3127
_K1 = 0xB492B66FBE98F273
_K2 = 0x9AE16A3B2F90404F
_K3 = 0xC949D7C7509E6557
_MUL = 0x9DDFEA08EB382D69


def city_hash32(text: str) -> int:
    """Return CatBoost's hash of a category: the lower half of CityHash64 of the UTF-8 bytes.

    >>> city_hash32("u")
    1981898051
    """
    return city_hash64(text.encode("utf-8", "surrogatepass")) & 0xFFFFFFFF


def city_hash64(s: bytes) -> int:
    """Return the hash of `s` by version 1.0 of CityHash64."""
    size = len(s)
    if size <= 32:
        return _hash_up_to_16(s) if size <= 16 else _hash_up_to_32(s)
    return _hash_up_to_64(s) if size <= 64 else _hash_longer(s)


def _read_word(s: bytes, offset: int, size: int = 8) -> int:
    return int.from_bytes(s[offset : offset + size], "little")


def _rotate(value: int, shift: int) -> int:
    value &= _MASK
    return ((value >> shift) | (value << (64 - shift))) & _MASK


def _mix(value: int) -> int:
    value &= _MASK
    return value ^ (value >> 47)


def _combine(u: int, v: int) -> int:
    a = _mix(((u ^ v) & _MASK) * _MUL)
    b = _mix(((v ^ a) & _MASK) * _MUL)
    return (b * _MUL) & _MASK


def _hash_up_to_16(s: bytes) -> int:
    size = len(s)
    if size > 8:
        a, b = _read_word(s, 0), _read_word(s, size - 8)
        return _combine(a, _rotate(b + size, size)) ^ b
    if size >= 4:
        return _combine(size + (_read_word(s, 0, 4) << 3), _read_word(s, size - 4, 4))
    if size > 0:
        y = s[0] + (s[size >> 1] << 8)
        z = size + (s[size - 1] << 2)
        return (_mix(y * _K2 ^ z * _K3) * _K2) & _MASK
    return _K2


def _hash_up_to_32(s: bytes) -> int:
    size = len(s)
    a, b = _read_word(s, 0) * _K1, _read_word(s, 8)
    c, d = _read_word(s, size - 8) * _K2, _read_word(s, size - 16) * _K0
    u = _rotate(a - b, 43) + _rotate(c, 30) + d
    return _combine(u & _MASK, (a + _rotate(b ^ _K3, 20) - c + size) & _MASK)


def _hash_up_to_64(s: bytes) -> int:
    size = len(s)

    # CityHash's code repeats these steps for the first and for the last 32 bytes.
    def mix_half(a: int, z: int, middle: int, end: int) -> tuple[int, int]:
        b, c = _rotate(a + z, 52), _rotate(a, 37)
        a += middle
        c += _rotate(a, 7)
        a += end
        return a + z, b + _rotate(a, 31) + c

    front = _read_word(s, 0) + (size + _read_word(s, size - 16)) * _K0
    vf, vs = mix_half(front, _read_word(s, 24), _read_word(s, 8), _read_word(s, 16))
    back = _read_word(s, 16) + _read_word(s, size - 32)
    middle, end = _read_word(s, size - 24), _read_word(s, size - 16)
    wf, ws = mix_half(back, _read_word(s, size - 8), middle, end)
    r = _mix((vf + ws) * _K2 + (wf + vs) * _K0)
    return (_mix(r * _K0 + vs) * _K2) & _MASK


def _hash_32_with_seeds(s: bytes, offset: int, a: int, b: int) -> tuple[int, int]:
    """Hash the 32 bytes of `s` from `offset` on (`WeakHashLen32WithSeeds` of CityHash)."""
    a += _read_word(s, offset)
    z = _read_word(s, offset + 24)
    b = _rotate(b + a + z, 21)
    c = a
    a += _read_word(s, offset + 8) + _read_word(s, offset + 16)
    b += _rotate(a, 44)
    return (a + z) & _MASK, (b + c) & _MASK


def _hash_longer(s: bytes) -> int:
    size = len(s)
    x, y, z = _read_word(s, 0), _read_word(s, size - 16) ^ _K1, _read_word(s, size - 56) ^ _K0
    v = _hash_32_with_seeds(s, size - 64, size, y)
    w = _hash_32_with_seeds(s, size - 32, size * _K1, _K0)
    z += _mix(v[1]) * _K1
    x = (_rotate(z + x, 39) * _K1) & _MASK
    y = (_rotate(y, 33) * _K1) & _MASK
    for offset in range(0, (size - 1) & ~63, 64):
        x = (_rotate(x + y + v[0] + _read_word(s, offset + 16), 37) * _K1) & _MASK
        y = (_rotate(y + v[1] + _read_word(s, offset + 48), 42) * _K1) & _MASK
        x ^= w[1]
        y ^= v[0]
        z = _rotate(z ^ w[0], 33)
        v = _hash_32_with_seeds(s, offset, v[1] * _K1, x + w[0])
        w = _hash_32_with_seeds(s, offset + 32, z + w[1], y)
        z, x = x, z
    first = (_combine(v[0], w[0]) + _mix(y) * _K1 + z) & _MASK
    return _combine(first, (_combine(v[1], w[1]) + x) & _MASK)


_MASK_32 = 0xFFFFFFFF


def murmur3(content: bytes) -> int:
    """Return the MurmurHash3 of bytes with seed 0, as a signed 32-bit integer.

    scikit-learn's hashing vectorizer derives the column and the sign of a word from this hash.

    >>> murmur3(b""), murmur3(b"dog")
    (0, -1312749093)
    """
    hash_value = 0
    blocks_end = len(content) - len(content) % 4
    for i in range(0, blocks_end, 4):
        hash_value ^= _scramble_block(int.from_bytes(content[i : i + 4], "little"))
        hash_value = ((hash_value << 13) | (hash_value >> 19)) & _MASK_32
        hash_value = (hash_value * 5 + 0xE6546B64) & _MASK_32
    hash_value ^= _scramble_block(int.from_bytes(content[blocks_end:], "little"))
    hash_value ^= len(content)
    hash_value = ((hash_value ^ (hash_value >> 16)) * 0x85EBCA6B) & _MASK_32
    hash_value = ((hash_value ^ (hash_value >> 13)) * 0xC2B2AE35) & _MASK_32
    hash_value ^= hash_value >> 16
    return hash_value - (1 << 32) if hash_value >> 31 else hash_value


def _scramble_block(block: int) -> int:
    block = (block * 0xCC9E2D51) & _MASK_32
    block = ((block << 15) | (block >> 17)) & _MASK_32
    return (block * 0x1B873593) & _MASK_32
