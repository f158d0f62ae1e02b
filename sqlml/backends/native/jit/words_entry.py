"""The entry of a kernel for callers that are machine code themselves: arguments as plain words.

    int64 sqlml_kernel_words(const int64 *words)

An array of d dimensions is 1 + 2 d words: where its numbers lie, its lengths, and the bytes from
one number to the next in each dimension. A count and a flag are a word each, None is no word, and a
tuple is the words of its parts. Nothing is checked, and Python's lock is not touched.

The result is below 0 unless rows are refused: what a kernel returns as an int, -1 for None and
False, 0 for True, `NO_MEMORY` where it got no memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind, Signature, numba_type
from sqlml.backends.native.jit.llvm_values import LONG, POINTER, array_value, long

WORDS_ENTRY = "sqlml_kernel_words"
"""The name of the entry."""

NUMBERS_ENTRY = "sqlml_kernel_numbers"
"""The name of the entry of a kernel of counts alone, which takes them as they are: C calls it."""

NO_MEMORY = -(1 << 63)


def words_of(kind: Kind, value: Any) -> Iterator[int]:
    """A constant argument as words. The caller keeps the arrays.

    >>> list(words_of("count", 3)), list(words_of(("flag", "nothing"), (True, None)))
    ([3], [1])
    """
    if isinstance(kind, ArrayKind):
        yield value.ctypes.data
        yield from value.shape
        yield from value.strides
    elif isinstance(kind, tuple):
        for part, held in zip(kind, value, strict=True):
            yield from words_of(part, held)
    elif kind != "nothing":
        yield int(value)


def write_words_entry(
    module: Any, context: Any, kernel: Any, described: Any, signature: Signature
) -> None:
    """Add the entry to the module of a kernel's entries."""
    entry = ir.Function(module, ir.FunctionType(LONG, [LONG.as_pointer()]), WORDS_ENTRY)
    b = ir.IRBuilder(entry.append_basic_block("entry"))
    place = itertools.count()

    def word() -> Any:
        return b.load(b.gep(entry.args[0], [long(next(place))]))

    def value(kind: Kind) -> Any:
        if isinstance(kind, ArrayKind):
            data = b.inttoptr(word(), POINTER)
            lengths, steps = ([word() for _ in range(kind.ndim)] for _ in range(2))
            return array_value(context, b, kind, data, lengths, steps)
        if isinstance(kind, tuple):
            return context.make_tuple(b, numba_type(kind), [value(part) for part in kind])
        if kind == "nothing":
            return context.get_dummy_value()
        return b.icmp_signed("!=", word(), long(0)) if kind == "flag" else word()

    values = [value(kind) for kind in signature]
    status, made = context.call_conv.call_function(
        b, kernel, described.restype, described.argtypes, values, attrs=("noinline",)
    )
    with b.if_then(status.is_error, likely=False):
        b.ret(long(NO_MEMORY))
    kind = str(described.restype)
    if kind == "none":
        b.ret(long(-1))
    elif kind == "bool":
        b.ret(b.sub(b.zext(b.icmp_unsigned("!=", made, ir.Constant(made.type, 0)), LONG), long(1)))
    else:
        b.ret(made)
    if all(kind == "count" for kind in signature):
        _write_numbers_entry(module, entry, len(signature))


def _write_numbers_entry(module: Any, words_entry: Any, count: int) -> None:
    entry = ir.Function(module, ir.FunctionType(LONG, [LONG] * count), NUMBERS_ENTRY)
    b = ir.IRBuilder(entry.append_basic_block("entry"))
    words = b.alloca(LONG, max(1, count))
    for i, number in enumerate(entry.args):
        b.store(number, b.gep(words, [long(i)]))
    b.ret(b.call(words_entry, [words]))
