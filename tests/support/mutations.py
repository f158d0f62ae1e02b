"""Seeded damage to model files: what an attacker, a cut transfer or another version may do.

`of_bytes` knows nothing of a format. The others know how one is built and aim at its weak places:
sizes, counts, child and feature numbers, thresholds, types, names, nesting.
"""

from __future__ import annotations

import copy
import io
import json
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np

Rng = np.random.Generator

NUMBERS: tuple[Any, ...] = (
    -1, 0, 1, 2, 7, 127, 255, 2**31 - 1, 2**31, -(2**31), 10**9, 2**53, 2**62, 2**63 - 1, 2**63,
    2**64, -(2**63), 10**30, 0.5, -0.0, 1e308, -1e308, 1e-320, float("nan"), float("inf"),
    float("-inf"),
)  # fmt: skip
TEXTS = (
    "", " ", "\0", "a\0b", "x" * 5000, "ä", "日本", "\ud800", "nan", "inf", "-inf", "1e400", "-1",
    "0", "1000000000", "99999999999999999999", "0x10", "１２", "1_0", "[1", "[nan]", "null", "[]",
    "9" * 5000, "a=b", "a b", "\u202e", "'; DROP TABLE m; --",
)  # fmt: skip


def deep(levels: int) -> Any:
    """A list in a list in a list."""
    made: Any = []
    for _ in range(levels):
        made = [made]
    return made


def junk(rng: Rng) -> Any:
    """A value that does not belong there."""
    kind = rng.integers(12)
    if kind < 5:
        return pick(rng, NUMBERS)
    if kind < 8:
        return pick(rng, TEXTS)
    return pick(
        rng, (None, True, False, [], {}, [[]], {"": 0}, [None], [1, "a"], [0] * 100, deep(90))
    )


def pick(rng: Rng, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def altered(value: Any, rng: Rng) -> Any:
    """A value near `value`: its neighbour, its negative, a huge one, the same as text."""
    if isinstance(value, bool) or value is None:
        return junk(rng)
    if isinstance(value, int | float):
        near = (value + 1, value - 1, -value, value * 10**9, str(value), [value], float(value))
        return pick(rng, near + NUMBERS)
    if isinstance(value, str):
        if value[:1].isdigit() or value[:1] in ("-", "["):
            return pick(rng, TEXTS + tuple(str(n) for n in NUMBERS))
        return pick(rng, (value + "\0", value[:-1], value.upper(), value * 2, *TEXTS))
    return junk(rng)


def of_tree(document: Any, rng: Rng, rounds: int = 0) -> Any:
    """A copy of a JSON document, changed in one to three places."""
    changed = copy.deepcopy(document)
    for _ in range(rounds or int(rng.integers(1, 4))):
        path = _walk(changed, rng)
        if path:
            _change(changed, path, rng)
    return changed


def _walk(document: Any, rng: Rng) -> list[tuple[Any, Any]]:
    """Steps (container, key) from the root to a place."""
    path: list[tuple[Any, Any]] = []
    node = document
    while isinstance(node, dict | list) and len(node):
        key = pick(rng, list(node)) if isinstance(node, dict) else int(rng.integers(len(node)))
        path.append((node, key))
        node = node[key]
        if rng.random() < 0.06:
            break
    return path


def _change(document: Any, path: list[tuple[Any, Any]], rng: Rng) -> None:
    # The innermost place, or a container of it.
    back = 0 if rng.random() < 0.6 else int(rng.integers(len(path)))
    node, key = path[len(path) - 1 - back]
    way = rng.integers(12)
    if way < 4:
        node[key] = altered(node[key], rng)
    elif way == 4:
        node[key] = junk(rng)
    elif way == 5:
        del node[key]
    elif way == 6 and isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]))
    elif way == 7 and isinstance(node, list):
        other = int(rng.integers(len(node)))
        node[key], node[other] = node[other], node[key]
    elif way == 8 and isinstance(node, list):
        node[key] = copy.deepcopy(pick(rng, node))  # children that meet or go in circles
    elif way == 9 and isinstance(node, list):
        del node[key:]
    elif way == 10 and isinstance(node, dict):
        node[pick(rng, TEXTS)] = node.pop(key)
    else:
        other_path = _walk(document, rng)
        if other_path:
            other, where = other_path[int(rng.integers(len(other_path)))]
            node[key] = copy.deepcopy(other[where])


def of_bytes(content: bytes, rng: Rng) -> bytes:
    """Bytes flipped, lost, doubled or overwritten."""
    made = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        if not made:
            break
        at = int(rng.integers(len(made)))
        size = int(rng.integers(1, 40))
        way = rng.integers(8)
        if way == 0:
            made[at] ^= 1 << int(rng.integers(8))
        elif way == 1:
            made[at] = int(rng.integers(256))
        elif way == 2:
            del made[at : at + size]
        elif way == 3:
            made[at:at] = made[at : at + size]
        elif way == 4:
            made[at : at + size] = bytes(rng.integers(0, 256, size, dtype=np.uint8))
        elif way == 5:
            form = pick(rng, ("<i", "<q", ">i", ">q"))
            number = pick(rng, (-1, 0, 2**31 - 1, -(2**31), 10**9))
            made[at : at + struct.calcsize(form)] = struct.pack(form, number)
        elif way == 6:
            made[at:at] = pick(rng, TEXTS).encode("utf-8", "surrogatepass")[:200]
        elif rng.random() < 0.3:
            del made[at:]
        else:
            other = int(rng.integers(len(made)))
            made[at : at + size] = made[other : other + size]
    return bytes(made)


def of_json(content: bytes, rng: Rng) -> bytes:
    """A JSON file; now and then with a key twice, or nested without end."""
    if rng.random() < 0.15:
        return of_bytes(content, rng)
    text = dumped(of_tree(json.loads(content), rng))
    way = rng.random()
    if way < 0.03:
        where = text.find(b'"', int(rng.integers(len(text))))
        return text[: where + 1] + text
    if way < 0.06:
        where = text.find(b"[", int(rng.integers(len(text))))
        return text[:where] + b"[" * 100_000 + text[where:]
    if way < 0.1:  # every key twice: the second one wins
        first, _, rest = text.partition(b":")
        return first + b":" + dumped(junk(rng)) + b"," + first.lstrip(b"{ ") + b":" + rest
    return text


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def of_lines(content: bytes, rng: Rng) -> bytes:
    """LightGBM's lines of key=value."""
    if rng.random() < 0.15:
        return of_bytes(content, rng)
    lines = content.decode().split("\n")
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(lines)))
        way = rng.integers(8)
        if way == 0:
            del lines[at]
        elif way == 1:
            lines.insert(at, pick(rng, lines))
        elif way == 2:
            other = int(rng.integers(len(lines)))
            lines[at], lines[other] = lines[other], lines[at]
        elif "=" in lines[at]:
            key, _, value = lines[at].partition("=")
            parts = of_tree([_number(p) for p in value.split(" ")], rng, 1)
            lines[at] = key + "=" + " ".join(str(p) for p in parts)
    return "\n".join(lines).encode("utf-8", "replace" if rng.random() < 0.5 else "surrogatepass")


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def ubjson(value: Any) -> bytes:
    """A document as UBJSON, untyped; integers beyond int64 wrap around."""
    if value is None:
        return b"Z"
    if isinstance(value, bool):
        return b"T" if value else b"F"
    if isinstance(value, int):
        return b"L" + struct.pack(">q", (value + 2**63) % 2**64 - 2**63)
    if isinstance(value, float):
        return b"D" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"S" + _named(value)
    if isinstance(value, np.ndarray):
        kinds = {"i1": b"i", "u1": b"U", "i2": b"I", "i4": b"l", "i8": b"L", "f4": b"d", "f8": b"D"}
        kind = kinds[value.dtype.str[1:]]
        head = b"[$" + kind + b"#L" + struct.pack(">q", value.size)
        return head + value.astype(value.dtype.newbyteorder(">")).tobytes()
    if isinstance(value, list):
        return b"[" + b"".join(map(ubjson, value)) + b"]"
    return b"{" + b"".join(_named(k) + ubjson(v) for k, v in value.items()) + b"}"


def _named(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return b"L" + struct.pack(">q", len(raw)) + raw


def plain(value: Any) -> Any:
    """A document with arrays as lists."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value


def typed(value: Any, rng: Rng) -> Any:
    """The same with lists of numbers as arrays, of a type that mostly fits them."""
    if isinstance(value, dict):
        return {k: v if k == "version" else typed(v, rng) for k, v in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(type(v) in (int, float) for v in value):
        dtype = np.float32 if any(type(v) is float for v in value) else np.int32
        if rng.random() < 0.02:
            dtype = pick(rng, (np.int8, np.uint8, np.int16, np.int64, np.float64))
        try:
            with np.errstate(all="ignore"):
                return np.array(value, dtype)
        except (OverflowError, ValueError):
            return value
    return [typed(v, rng) for v in value]


def of_archive(content: bytes, rng: Rng) -> bytes:
    """A zip archive of JSON and arrays: one entry is changed, lost or doubled."""
    if rng.random() < 0.1:
        return of_bytes(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = [(e.filename, archive.read(e)) for e in archive.infolist()]
    trees = [i for i, (name, _) in enumerate(entries) if name.endswith(("json", "schema"))]
    at = pick(rng, trees) if trees and rng.random() < 0.7 else int(rng.integers(len(entries)))
    name, held = entries[at]
    way = rng.random()
    if way < 0.03:
        del entries[at]
    elif way < 0.06:
        entries[at] = (name, pick(rng, entries)[1])
    elif name.endswith(("json", "schema")):
        try:
            entries[at] = (name, dumped(of_tree(json.loads(held), rng)))
        except ValueError:
            entries[at] = (name, of_bytes(held, rng))
    elif name.endswith(".npy"):
        entries[at] = (name, of_npy(held, rng))
    else:
        entries[at] = (name, of_bytes(held, rng))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, held in entries:
            archive.writestr(name, held)
    return out.getvalue()


def of_npy(content: bytes, rng: Rng) -> bytes:
    """An array: other numbers, another length, shape or type."""
    try:
        array = np.load(io.BytesIO(content), allow_pickle=False).copy()
    except ValueError:
        return of_bytes(content, rng)
    out = io.BytesIO()
    np.save(out, of_array(array, rng))
    return out.getvalue()


def of_array(array: Any, rng: Rng) -> Any:
    """One number of an array changed, or its shape or dtype."""
    way = rng.integers(8)
    if way == 0:
        return array[: array.shape[0] // 2] if array.ndim else array[None]
    if way == 1:
        return array[None]
    if way == 2:
        return array.ravel()
    if way == 3 and array.ndim:
        return np.concatenate([array, array])
    if way == 4 and not array.dtype.names:
        with np.errstate(all="ignore"):
            dtype = pick(rng, (np.int8, np.int64, np.float32, np.float64, bool))
            return array.astype(dtype) if array.dtype.kind in "biuf" else array
    made = array.copy()
    field = pick(rng, made.dtype.names) if made.dtype.names else None
    flat = (made[field] if field else made).reshape(-1)
    if not flat.size or flat.dtype.kind not in "biuf":
        return made
    set_junk(flat, rng)
    if field:
        made[field] = flat.reshape(made[field].shape)
        return made
    return flat.reshape(made.shape)


def set_junk(flat: Any, rng: Rng) -> None:
    """One entry of a flat array gets a number that does not belong there."""
    at = int(rng.integers(flat.size))
    if flat.dtype.kind == "f":
        with np.errstate(all="ignore"):
            flat[at] = pick(rng, (np.nan, np.inf, -np.inf, -1.0, 1e300, 0.0, 5e-324))
    elif flat.dtype.kind == "b":
        flat[at] = ~flat[at]
    else:
        info = np.iinfo(flat.dtype)
        choices = (info.min, info.max, 0, 1, at, int(flat[at]) + 1, int(flat[at]) - 1, flat.size)
        flat[at] = min(max(int(pick(rng, choices)), info.min), info.max)


def of_message(message: Any, rng: Rng) -> None:
    """A protobuf message, changed in place somewhere."""
    fields = [field for field, _ in message.ListFields()]
    if not fields:
        return
    field = pick(rng, fields)
    value = getattr(message, field.name)
    is_message = field.message_type is not None
    if hasattr(value, "append") or hasattr(value, "add"):
        at = int(rng.integers(len(value)))
        if is_message and rng.random() < 0.85:
            of_message(value[at], rng)
        elif rng.random() < 0.25:
            del value[at]
        elif rng.random() < 0.3:
            value.extend([copy.deepcopy(value[at])])
        elif rng.random() < 0.2:
            del value[at:]
        elif not is_message:
            value[at] = _scalar(value[at], rng)
        return
    if is_message and rng.random() < 0.9:
        of_message(value, rng)
    elif is_message or rng.random() < 0.15:
        message.ClearField(field.name)
    else:
        try:
            setattr(message, field.name, _scalar(value, rng))
        except (ValueError, TypeError):
            message.ClearField(field.name)


def _scalar(value: Any, rng: Rng) -> Any:
    if isinstance(value, bytes):
        if rng.random() < 0.5 and len(value) % 4 == 0 and value:
            words = np.frombuffer(value, pick(rng, (np.int32, np.float32))).copy()
            set_junk(words, rng)
            return words.tobytes()
        return of_bytes(value, rng)
    if isinstance(value, str):
        changed = altered(value, rng)
        return changed.encode("utf-8", "replace").decode() if isinstance(changed, str) else ""
    if isinstance(value, float):
        return float(pick(rng, (np.nan, np.inf, -np.inf, -1.0, 1e30, 0.0, value + 1)))
    number = int(pick(rng, (value + 1, value - 1, -1, 0, 7, 2**31 - 1, 10**9, 1 << 40)))
    return number if value < 2**31 else value


Mutation = Callable[[bytes, Rng], bytes]
