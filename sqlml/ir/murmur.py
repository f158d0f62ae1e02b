"""`murmur3`: MurmurHash3 with 32 bits and seed 0, as scikit-learn's hashing signs and places words.

Austin Appleby's MurmurHash3_x86_32, which is in the public domain, read as a signed number.
"""

from __future__ import annotations

_MASK = 0xFFFFFFFF


def murmur3(content: bytes) -> int:
    """The hash of some bytes, from -2**31 to 2**31 - 1.

    >>> murmur3(b""), murmur3(b"dog")
    (0, -1312749093)
    """
    h = 0
    whole = len(content) - len(content) % 4
    for i in range(0, whole, 4):
        h ^= _mixed(int.from_bytes(content[i : i + 4], "little"))
        h = ((h << 13) | (h >> 19)) & _MASK
        h = (h * 5 + 0xE6546B64) & _MASK
    h ^= _mixed(int.from_bytes(content[whole:], "little"))
    h ^= len(content)
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _MASK
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _mixed(block: int) -> int:
    block = (block * 0xCC9E2D51) & _MASK
    block = ((block << 15) | (block >> 17)) & _MASK
    return (block * 0x1B873593) & _MASK
