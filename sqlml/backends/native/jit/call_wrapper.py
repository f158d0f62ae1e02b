"""The entry of a kernel's machine code: a function of CPython's own form that needs no numba.

It is what METH_FASTCALL says: `PyObject *entry(self, args, nargs)`, where self is the tuple
(numpy.ndarray, None, TypeError). It checks that the arguments are of the kernel's kinds, reads the
arrays' fields where numpy's C API has them, and runs the kernel without the GIL:

    if nargs != 2: raise TypeError
    if type(args[0]) is not ndarray or args[0]->nd != 2 or ..: raise TypeError
    x = {args[0]->data, args[0]->dimensions, args[0]->strides}; ..
    state = PyEval_SaveThread(); status = kernel(&result, x, ..); PyEval_RestoreThread(state)
    return PyLong_FromLongLong(result)

numba's kernels take memory from its runtime; what they need of that is here as well, on malloc.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.argument_kinds import (
    BYTE_ORDER,
    C_CONTIGUOUS,
    ENTRY,
    FIELDS,
    SWAPPED,
    TYPE,
    TYPE_NUMBER,
    WRITEABLE,
    ArrayKind,
    Kind,
    Signature,
    numba_type,
)

# Values in LLVM's language that both entries of a kernel make: numbers, functions, arrays.


BYTE, INT, LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = BYTE.as_pointer()


def long(value: int) -> Any:
    """A constant of 64 bits."""
    return ir.Constant(LONG, value)


def declared(module: Any, name: str, result: Any, *args: Any) -> Any:
    """The function of a name that the process has, as it is called with `args`."""
    form = ir.FunctionType(result, [a.type for a in args])
    return module.globals.get(name) or ir.Function(module, form, name)


def array_value(
    context: Any, b: Any, kind: ArrayKind, data: Any, lengths: list[Any], steps: list[Any]
) -> Any:
    """An array as numba's kernels take it: where its numbers lie, and the bytes between them."""
    made = context.make_array(numba_type(kind))(context, b)
    size: Any = long(1)
    for length in lengths:
        size = b.mul(size, length)
    made.data = b.bitcast(data, made.data.type)
    made.shape = _packed(b, made.shape.type, lengths)
    made.strides = _packed(b, made.strides.type, steps)
    made.nitems, made.itemsize = size, long(kind.dtype.itemsize)
    # The caller holds the array; without a meminfo the kernel counts no references to it.
    made.meminfo = ir.Constant(made.meminfo.type, None)
    made.parent = ir.Constant(made.parent.type, None)
    return made._getvalue()


def _packed(builder: Any, kind: Any, values: list[Any]) -> Any:
    made: Any = ir.Constant(kind, ir.Undefined)
    for i, value in enumerate(values):
        made = builder.insert_value(made, value, i)
    return made


# The entry of a kernel for callers that are machine code themselves: arguments as plain words.
#
#     int64 sqlml_kernel_words(const int64 *words)
#
# An array of d dimensions is 1 + 2 d words: where its numbers lie, its lengths, and the bytes
# from one number to the next in each dimension. A count and a flag are a word each, None is no
# word, and a tuple is the words of its parts. Nothing is checked, and Python's lock is not
# touched.
#
# The result is below 0 unless rows are refused: what a kernel returns as an int, -1 for None and
# False, 0 for True, `NO_MEMORY` where it got no memory.


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


_HEADER = 64
"""Bytes before the numbers of an array of a kernel's own: numba's NRT_MemInfo has up to 48."""


def wrapper(result: Any, signature: Signature) -> str:
    """The entries of what numba compiled, in LLVM's language: this one and `call_wrapper.py`'s."""
    context, described = result.target_context, result.fndesc
    module = context.codegen().create_library("entry").create_ir_module("entry")
    kernel = context.declare_function(module, described)
    _Entry(module, context).write(kernel, described, signature)
    write_words_entry(module, context, kernel, described, signature)
    _runtime(module)
    return str(module)


class _Entry:
    """Writes the entry."""

    def __init__(self, module: Any, context: Any) -> None:
        self._module, self._context = module, context
        form = ir.FunctionType(POINTER, [POINTER, POINTER.as_pointer(), LONG])
        self._entry = ir.Function(module, form, ENTRY)
        self._builder = ir.IRBuilder(self._entry.append_basic_block("entry"))
        self._fail = self._entry.append_basic_block("fail")

    def write(self, kernel: Any, described: Any, signature: Signature) -> None:
        """Check and read the arguments, run the kernel, and give its result."""
        b, context = self._builder, self._context
        self._own, arguments, count = self._entry.args
        self._array = self._item(self._own, 0)
        self._require(b.icmp_signed("==", count, long(len(signature))))
        values = [
            self._value(b.load(b.gep(arguments, [long(i)])), kind)
            for i, kind in enumerate(signature)
        ]
        state = self._call("PyEval_SaveThread", POINTER)
        status, made = context.call_conv.call_function(
            b, kernel, described.restype, described.argtypes, values, attrs=("noinline",)
        )
        self._call("PyEval_RestoreThread", ir.VoidType(), state)
        with b.if_then(status.is_error, likely=False):  # nothing else fails in a kernel
            b.ret(self._call("PyErr_NoMemory", POINTER))
        b.ret(self._boxed(str(described.restype), made))
        b.position_at_end(self._fail)
        text = "a kernel was called with arguments that it was not compiled for"
        self._call("PyErr_SetString", ir.VoidType(), self._item(self._own, 2), self._text(text))
        b.ret(ir.Constant(POINTER, None))

    def _boxed(self, kind: str, made: Any) -> Any:
        b = self._builder
        if kind == "none":
            nothing = self._item(self._own, 1)
            self._call("Py_IncRef", ir.VoidType(), nothing)
            return nothing
        if kind == "bool":
            return self._call("PyBool_FromLong", POINTER, b.zext(made, LONG))
        if kind == "int64":
            return self._call("PyLong_FromLongLong", POINTER, made)
        raise AssertionError(f"a kernel returns {kind}; it may return None, a bool or an int")

    def _value(self, what: Any, kind: Kind) -> Any:
        b = self._builder
        if isinstance(kind, ArrayKind):
            return self._read_array(what, kind)
        if isinstance(kind, tuple):
            size = self._call("PyTuple_Size", LONG, what)
            self._require(b.icmp_signed("==", size, long(len(kind))))
            parts = [self._value(self._item(what, i), part) for i, part in enumerate(kind)]
            return self._context.make_tuple(b, numba_type(kind), parts)
        if kind == "nothing":
            self._require(b.icmp_unsigned("==", what, self._item(self._own, 1)))
            return self._context.get_dummy_value()
        if kind == "flag":
            truth = self._call("PyObject_IsTrue", INT, what)
            self._require(b.icmp_signed(">=", truth, ir.Constant(INT, 0)))
            return b.icmp_signed("!=", truth, ir.Constant(INT, 0))
        number = self._call("PyLong_AsLongLong", LONG, what)
        with b.if_then(b.icmp_signed("==", number, long(-1)), likely=False):
            raised = self._call("PyErr_Occurred", POINTER)
            self._require(b.icmp_unsigned("==", raised, ir.Constant(POINTER, None)))
        return number

    def _read_array(self, what: Any, kind: ArrayKind) -> Any:
        b = self._builder
        own = self._load(what, TYPE, POINTER)
        with b.if_then(b.icmp_unsigned("!=", own, self._array), likely=False):
            below = self._call("PyType_IsSubtype", INT, own, self._array)
            self._require(b.icmp_signed("!=", below, ir.Constant(INT, 0)))
        wanted = C_CONTIGUOUS if kind.layout == "C" else 0
        wanted |= 0 if kind.readonly else WRITEABLE
        flags = b.and_(self._field(what, "flags", INT), ir.Constant(INT, wanted))
        dimensions = self._field(what, "nd", INT)
        descr = self._field(what, "descr", POINTER)
        number, order = self._load(descr, TYPE_NUMBER, INT), self._load(descr, BYTE_ORDER, BYTE)
        is_type: Any = ir.Constant(ir.IntType(1), 0)
        for n in type_numbers(kind.dtype):
            is_type = b.or_(is_type, b.icmp_signed("==", number, ir.Constant(INT, n)))
        fits = b.and_(is_type, b.icmp_signed("==", flags, ir.Constant(INT, wanted)))
        fits = b.and_(fits, b.icmp_signed("==", dimensions, ir.Constant(INT, kind.ndim)))
        self._require(b.and_(fits, b.icmp_signed("!=", order, ir.Constant(BYTE, SWAPPED))))
        return self._array_of(what, kind)

    def _array_of(self, what: Any, kind: ArrayKind) -> Any:
        b = self._builder
        shape = self._field(what, "dimensions", LONG.as_pointer())
        strides = self._field(what, "strides", LONG.as_pointer())
        lengths = [b.load(b.gep(shape, [long(i)])) for i in range(kind.ndim)]
        steps = [b.load(b.gep(strides, [long(i)])) for i in range(kind.ndim)]
        data = self._field(what, "data", POINTER)
        return array_value(self._context, b, kind, data, lengths, steps)

    def _require(self, holds: Any) -> None:
        after = self._entry.append_basic_block()
        self._builder.cbranch(holds, after, self._fail)
        self._builder.position_at_end(after)

    def _item(self, of: Any, i: int) -> Any:
        return self._call("PyTuple_GetItem", POINTER, of, long(i))

    def _field(self, what: Any, name: str, kind: Any) -> Any:
        return self._load(what, FIELDS[name], kind)

    def _load(self, what: Any, place: int, kind: Any) -> Any:
        b = self._builder
        return b.load(b.bitcast(b.gep(what, [long(place)]), kind.as_pointer()))

    def _call(self, name: str, result: Any, *args: Any) -> Any:
        return self._builder.call(declared(self._module, name, result, *args), args)

    def _text(self, text: str) -> Any:
        held = ir.Constant(ir.ArrayType(BYTE, len(text) + 1), bytearray(text.encode() + b"\0"))
        place = ir.GlobalVariable(self._module, held.type, "sqlml_message")
        place.initializer, place.linkage, place.global_constant = held, "internal", True
        return self._builder.bitcast(place, POINTER)


def type_numbers(dtype: np.dtype[Any]) -> tuple[int, ...]:
    """numpy's numbers of the types that are this dtype: two C types may have the same bits.

    >>> type_numbers(np.dtype(bool))
    (0,)
    """
    if dtype.kind == "V":
        return (dtype.num,)
    same = {np.dtype(c).num for c in "?bBhHiIlLqQefd" if np.dtype(c) == dtype}
    return tuple(sorted(same))


def _runtime(module: Any) -> None:
    """What kernels call of numba's: an array's memory is one piece, and its own until freed.

    A meminfo is {references, destructor, its argument, data, size, allocator}.
    """
    form = ir.FunctionType(POINTER, [LONG, INT])
    allocate = ir.Function(module, form, "NRT_MemInfo_alloc_aligned")
    b = ir.IRBuilder(allocate.append_basic_block())
    size, align = allocate.args[0], b.zext(allocate.args[1], LONG)
    room = b.add(b.add(size, align), long(_HEADER))
    held = b.call(declared(module, "malloc", POINTER, room), [room])
    with b.if_then(b.icmp_unsigned("==", held, ir.Constant(POINTER, None)), likely=False):
        b.ret(ir.Constant(POINTER, None))
    words = b.bitcast(held, LONG.as_pointer())
    begin = b.add(b.ptrtoint(held, LONG), long(_HEADER))
    begin = b.and_(b.sub(b.add(begin, align), long(1)), b.neg(align))
    for place, word in enumerate((long(1), long(0), long(0), begin, size, long(0))):
        b.store(word, b.gep(words, [long(place)]))
    b.ret(held)
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), "NRT_MemInfo_call_dtor")
    b = ir.IRBuilder(free.append_basic_block())
    b.call(declared(module, "free", ir.VoidType(), free.args[0]), [free.args[0]])
    b.ret_void()
