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

from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind, Signature, numba_type
from sqlml.backends.native.jit.array_fields import (
    BYTE_ORDER,
    C_CONTIGUOUS,
    ENTRY,
    FIELDS,
    SWAPPED,
    TYPE,
    TYPE_NUMBER,
    WRITEABLE,
)
from sqlml.backends.native.jit.llvm_values import (
    BYTE,
    INT,
    LONG,
    POINTER,
    array_value,
    declared,
    long,
)
from sqlml.backends.native.jit.words_entry import write_words_entry

_HEADER = 64
"""Bytes before the numbers of an array of a kernel's own: numba's NRT_MemInfo has up to 48."""


def wrapper(result: Any, signature: Signature) -> str:
    """The entries of what numba compiled, in LLVM's language: this one and `words_entry.py`'s."""
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
