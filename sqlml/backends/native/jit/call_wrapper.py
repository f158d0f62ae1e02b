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

_BYTE, _INT, _LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_POINTER = _BYTE.as_pointer()

_HEADER = 64
"""Bytes before the numbers of an array of a kernel's own: numba's NRT_MemInfo has up to 48."""


def wrapper(result: Any, signature: Signature) -> str:
    """The entry of what numba compiled, in LLVM's language."""
    context, described = result.target_context, result.fndesc
    module = context.codegen().create_library("entry").create_ir_module("entry")
    kernel = context.declare_function(module, described)
    _Entry(module, context).write(kernel, described, signature)
    _runtime(module)
    return str(module)


class _Entry:
    """Writes the entry."""

    def __init__(self, module: Any, context: Any) -> None:
        self._module, self._context = module, context
        form = ir.FunctionType(_POINTER, [_POINTER, _POINTER.as_pointer(), _LONG])
        self._entry = ir.Function(module, form, ENTRY)
        self._builder = ir.IRBuilder(self._entry.append_basic_block("entry"))
        self._fail = self._entry.append_basic_block("fail")

    def write(self, kernel: Any, described: Any, signature: Signature) -> None:
        """Check and read the arguments, run the kernel, and give its result."""
        b, context = self._builder, self._context
        self._own, arguments, count = self._entry.args
        self._array = self._item(self._own, 0)
        self._require(b.icmp_signed("==", count, _long(len(signature))))
        values = [
            self._value(b.load(b.gep(arguments, [_long(i)])), kind)
            for i, kind in enumerate(signature)
        ]
        state = self._call("PyEval_SaveThread", _POINTER)
        status, made = context.call_conv.call_function(
            b, kernel, described.restype, described.argtypes, values, attrs=("noinline",)
        )
        self._call("PyEval_RestoreThread", ir.VoidType(), state)
        with b.if_then(status.is_error, likely=False):  # nothing else fails in a kernel
            b.ret(self._call("PyErr_NoMemory", _POINTER))
        b.ret(self._boxed(str(described.restype), made))
        b.position_at_end(self._fail)
        text = "a kernel was called with arguments that it was not compiled for"
        self._call("PyErr_SetString", ir.VoidType(), self._item(self._own, 2), self._text(text))
        b.ret(ir.Constant(_POINTER, None))

    def _boxed(self, kind: str, made: Any) -> Any:
        b = self._builder
        if kind == "none":
            nothing = self._item(self._own, 1)
            self._call("Py_IncRef", ir.VoidType(), nothing)
            return nothing
        if kind == "bool":
            return self._call("PyBool_FromLong", _POINTER, b.zext(made, _LONG))
        if kind == "int64":
            return self._call("PyLong_FromLongLong", _POINTER, made)
        raise AssertionError(f"a kernel returns {kind}; it may return None, a bool or an int")

    def _value(self, what: Any, kind: Kind) -> Any:
        b = self._builder
        if isinstance(kind, ArrayKind):
            return self._read_array(what, kind)
        if isinstance(kind, tuple):
            size = self._call("PyTuple_Size", _LONG, what)
            self._require(b.icmp_signed("==", size, _long(len(kind))))
            parts = [self._value(self._item(what, i), part) for i, part in enumerate(kind)]
            return self._context.make_tuple(b, numba_type(kind), parts)
        if kind == "nothing":
            self._require(b.icmp_unsigned("==", what, self._item(self._own, 1)))
            return self._context.get_dummy_value()
        if kind == "flag":
            truth = self._call("PyObject_IsTrue", _INT, what)
            self._require(b.icmp_signed(">=", truth, ir.Constant(_INT, 0)))
            return b.icmp_signed("!=", truth, ir.Constant(_INT, 0))
        number = self._call("PyLong_AsLongLong", _LONG, what)
        with b.if_then(b.icmp_signed("==", number, _long(-1)), likely=False):
            raised = self._call("PyErr_Occurred", _POINTER)
            self._require(b.icmp_unsigned("==", raised, ir.Constant(_POINTER, None)))
        return number

    def _read_array(self, what: Any, kind: ArrayKind) -> Any:
        b = self._builder
        own = self._load(what, TYPE, _POINTER)
        with b.if_then(b.icmp_unsigned("!=", own, self._array), likely=False):
            below = self._call("PyType_IsSubtype", _INT, own, self._array)
            self._require(b.icmp_signed("!=", below, ir.Constant(_INT, 0)))
        wanted = C_CONTIGUOUS if kind.layout == "C" else 0
        wanted |= 0 if kind.readonly else WRITEABLE
        flags = b.and_(self._field(what, "flags", _INT), ir.Constant(_INT, wanted))
        dimensions = self._field(what, "nd", _INT)
        descr = self._field(what, "descr", _POINTER)
        number, order = self._load(descr, TYPE_NUMBER, _INT), self._load(descr, BYTE_ORDER, _BYTE)
        is_type: Any = ir.Constant(ir.IntType(1), 0)
        for n in type_numbers(kind.dtype):
            is_type = b.or_(is_type, b.icmp_signed("==", number, ir.Constant(_INT, n)))
        fits = b.and_(is_type, b.icmp_signed("==", flags, ir.Constant(_INT, wanted)))
        fits = b.and_(fits, b.icmp_signed("==", dimensions, ir.Constant(_INT, kind.ndim)))
        self._require(b.and_(fits, b.icmp_signed("!=", order, ir.Constant(_BYTE, SWAPPED))))
        return self._array_of(what, kind)

    def _array_of(self, what: Any, kind: ArrayKind) -> Any:
        b, context = self._builder, self._context
        made = context.make_array(numba_type(kind))(context, b)
        shape = self._field(what, "dimensions", _LONG.as_pointer())
        strides = self._field(what, "strides", _LONG.as_pointer())
        lengths = [b.load(b.gep(shape, [_long(i)])) for i in range(kind.ndim)]
        steps = [b.load(b.gep(strides, [_long(i)])) for i in range(kind.ndim)]
        size: Any = _long(1)
        for length in lengths:
            size = b.mul(size, length)
        data = self._field(what, "data", _POINTER)
        made.data = b.bitcast(data, made.data.type)
        made.shape = _packed(b, made.shape.type, lengths)
        made.strides = _packed(b, made.strides.type, steps)
        made.nitems, made.itemsize = size, _long(kind.dtype.itemsize)
        # The caller holds the array; without a meminfo the kernel counts no references to it.
        made.meminfo = ir.Constant(made.meminfo.type, None)
        made.parent = ir.Constant(made.parent.type, None)
        return made._getvalue()

    def _require(self, holds: Any) -> None:
        after = self._entry.append_basic_block()
        self._builder.cbranch(holds, after, self._fail)
        self._builder.position_at_end(after)

    def _item(self, of: Any, i: int) -> Any:
        return self._call("PyTuple_GetItem", _POINTER, of, _long(i))

    def _field(self, what: Any, name: str, kind: Any) -> Any:
        return self._load(what, FIELDS[name], kind)

    def _load(self, what: Any, place: int, kind: Any) -> Any:
        b = self._builder
        return b.load(b.bitcast(b.gep(what, [_long(place)]), kind.as_pointer()))

    def _call(self, name: str, result: Any, *args: Any) -> Any:
        return self._builder.call(_declared(self._module, name, result, *args), args)

    def _text(self, text: str) -> Any:
        held = ir.Constant(ir.ArrayType(_BYTE, len(text) + 1), bytearray(text.encode() + b"\0"))
        place = ir.GlobalVariable(self._module, held.type, "sqlml_message")
        place.initializer, place.linkage, place.global_constant = held, "internal", True
        return self._builder.bitcast(place, _POINTER)


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
    form = ir.FunctionType(_POINTER, [_LONG, _INT])
    allocate = ir.Function(module, form, "NRT_MemInfo_alloc_aligned")
    b = ir.IRBuilder(allocate.append_basic_block())
    size, align = allocate.args[0], b.zext(allocate.args[1], _LONG)
    room = b.add(b.add(size, align), _long(_HEADER))
    held = b.call(_declared(module, "malloc", _POINTER, room), [room])
    with b.if_then(b.icmp_unsigned("==", held, ir.Constant(_POINTER, None)), likely=False):
        b.ret(ir.Constant(_POINTER, None))
    words = b.bitcast(held, _LONG.as_pointer())
    begin = b.add(b.ptrtoint(held, _LONG), _long(_HEADER))
    begin = b.and_(b.sub(b.add(begin, align), _long(1)), b.neg(align))
    for place, word in enumerate((_long(1), _long(0), _long(0), begin, size, _long(0))):
        b.store(word, b.gep(words, [_long(place)]))
    b.ret(held)
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [_POINTER]), "NRT_MemInfo_call_dtor")
    b = ir.IRBuilder(free.append_basic_block())
    b.call(_declared(module, "free", ir.VoidType(), free.args[0]), [free.args[0]])
    b.ret_void()


def _declared(module: Any, name: str, result: Any, *args: Any) -> Any:
    form = ir.FunctionType(result, [a.type for a in args])
    return module.globals.get(name) or ir.Function(module, form, name)


def _packed(builder: Any, kind: Any, values: list[Any]) -> Any:
    made: Any = ir.Constant(kind, ir.Undefined)
    for i, value in enumerate(values):
        made = builder.insert_value(made, value, i)
    return made


def _long(value: int) -> Any:
    return ir.Constant(_LONG, value)
