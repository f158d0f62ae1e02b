"""Emit the entries of a kernel, through which it can be called without numba.

The entry for Python has CPython's METH_FASTCALL form, `PyObject *entry(self, args, nargs)`, where
self is the tuple (numpy.ndarray, None, TypeError). It checks the kinds of the arguments, reads the
arrays' fields as in numpy's C API, and runs the kernel without the GIL:

    if nargs != 2: raise TypeError
    if type(args[0]) is not ndarray or args[0]->nd != 2 or ...: raise TypeError
    x = {args[0]->data, args[0]->dimensions, args[0]->strides}; ...
    state = PyEval_SaveThread(); status = kernel(&result, x, ...); PyEval_RestoreThread(state)
    return PyLong_FromLongLong(result)

Kernels allocate memory with numba's runtime. The functions that they need are emitted here, too;
they use malloc.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir

from sqlml.backends.native.jit import argument_kinds as layout
from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind, Signature, to_numba_type

BYTE, INT, LONG = ir.IntType(8), ir.IntType(32), ir.IntType(64)
POINTER = BYTE.as_pointer()


def long(value: int) -> Any:
    return ir.Constant(LONG, value)


def declare_function(module: Any, name: str, result_type: Any, *args: Any) -> Any:
    """Declare the function `name` of the process, with the types of `args` as argument types."""
    function_type = ir.FunctionType(result_type, [argument.type for argument in args])
    return module.globals.get(name) or ir.Function(module, function_type, name)


def make_array_value(
    context: Any, builder: Any, kind: ArrayKind, data: Any, lengths: list[Any], strides: list[Any]
) -> Any:
    """Emit an array in numba's layout; strides are in bytes."""
    array = context.make_array(to_numba_type(kind))(context, builder)
    size: Any = long(1)
    for length in lengths:
        size = builder.mul(size, length)
    array.data = builder.bitcast(data, array.data.type)
    array.shape = _pack_integers(builder, array.shape.type, lengths)
    array.strides = _pack_integers(builder, array.strides.type, strides)
    array.nitems, array.itemsize = size, long(kind.dtype.itemsize)
    # The caller owns the array. Without a meminfo, the kernel counts no references.
    array.meminfo = ir.Constant(array.meminfo.type, None)
    array.parent = ir.Constant(array.parent.type, None)
    return array._getvalue()


def _pack_integers(builder: Any, array_type: Any, values: list[Any]) -> Any:
    packed: Any = ir.Constant(array_type, ir.Undefined)
    for i, value in enumerate(values):
        packed = builder.insert_value(packed, value, i)
    return packed


def get_pointers(context: Any, b: Any, signature: Any, arguments: Any, *indices: int) -> list[Any]:
    """Return the data pointers of the array arguments at `indices`."""
    return [context.make_array(signature.args[i])(context, b, arguments[i]).data for i in indices]


def get_item_pointers(
    context: Any, builder: Any, signature: Any, arguments: Any, i: int
) -> list[Any]:
    """Return the data pointers of the arrays in argument i, a tuple."""
    arrays = (
        context.make_array(kind)(context, builder, builder.extract_value(arguments[i], item))
        for item, kind in enumerate(signature.args[i])
    )
    return [array.data for array in arrays]


def get_axis_length(
    context: Any, builder: Any, signature: Any, arguments: Any, i: int, axis: int = 0
) -> Any:
    array = context.make_array(signature.args[i])(context, builder, arguments[i])
    return builder.extract_value(array.shape, axis)


def vector_pointer(builder: Any, data: Any, index: Any, vector: Any) -> Any:
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


def broadcast(builder: Any, value: Any, vector: Any) -> Any:
    """Emit a vector of the type `vector` with `value` in each lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    lane = builder.insert_element(undefined, value, ir.Constant(INT, 0))
    zeros = ir.Constant(ir.VectorType(INT, vector.count), [0] * vector.count)
    return builder.shuffle_vector(lane, undefined, zeros)


# The entry of a kernel for callers that are machine code themselves, with 64-bit arguments:
#
#     int64 sqlml_kernel_words(const int64 *words)
#
# An array of d dimensions is 1 + 2 d words: a data pointer, lengths, and strides in bytes.
# A count or a flag is one word, None is no word, and a tuple is the words of the items. Nothing is
# checked, and the GIL is not touched.
#
# The result is negative unless rows are rejected. It is the kernel's int result, -1 for None and
# False, 0 for True, or `NO_MEMORY` if memory ran out.

WORDS_ENTRY = "sqlml_kernel_words"
"""The symbol of the entry for machine code."""

NUMBERS_ENTRY = "sqlml_kernel_numbers"
"""The symbol of the entry of a kernel whose arguments are all counts: a C function of int64."""

NO_MEMORY = -(1 << 63)


def to_words(kind: Kind, value: Any) -> Iterator[int]:
    """Yield the 64-bit words that pass `value` to a kernel; the caller must keep arrays alive.

    >>> list(to_words("count", 3)), list(to_words(("flag", "nothing"), (True, None)))
    ([3], [1])
    """
    if isinstance(kind, ArrayKind):
        yield value.ctypes.data
        yield from value.shape
        yield from value.strides
    elif isinstance(kind, tuple):
        for item_kind, item in zip(kind, value, strict=True):
            yield from to_words(item_kind, item)
    elif kind != "nothing":
        yield int(value)


def emit_words_entry(
    module: Any, context: Any, kernel: Any, fndesc: Any, signature: Signature
) -> None:
    """Add the entry through which machine code calls a kernel to `module`."""
    entry = ir.Function(module, ir.FunctionType(LONG, [LONG.as_pointer()]), WORDS_ENTRY)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    word_indexes = itertools.count()

    def load_word() -> Any:
        return builder.load(builder.gep(entry.args[0], [long(next(word_indexes))]))

    def load_argument(kind: Kind) -> Any:
        if isinstance(kind, ArrayKind):
            data = builder.inttoptr(load_word(), POINTER)
            lengths, strides = ([load_word() for _ in range(kind.ndim)] for _ in range(2))
            return make_array_value(context, builder, kind, data, lengths, strides)
        if isinstance(kind, tuple):
            items = [load_argument(item) for item in kind]
            return context.make_tuple(builder, to_numba_type(kind), items)
        if kind == "nothing":
            return context.get_dummy_value()
        return builder.icmp_signed("!=", load_word(), long(0)) if kind == "flag" else load_word()

    values = [load_argument(kind) for kind in signature]
    status, kernel_result = context.call_conv.call_function(
        builder, kernel, fndesc.restype, fndesc.argtypes, values, attrs=("noinline",)
    )
    with builder.if_then(status.is_error, likely=False):
        builder.ret(long(NO_MEMORY))
    result_kind = str(fndesc.restype)
    if result_kind == "none":
        builder.ret(long(-1))
    elif result_kind == "bool":
        is_true = builder.icmp_unsigned("!=", kernel_result, ir.Constant(kernel_result.type, 0))
        builder.ret(builder.sub(builder.zext(is_true, LONG), long(1)))
    else:
        builder.ret(kernel_result)
    if all(kind == "count" for kind in signature):
        _emit_numbers_entry(module, entry, len(signature))


def _emit_numbers_entry(module: Any, words_entry: Any, count: int) -> None:
    entry = ir.Function(module, ir.FunctionType(LONG, [LONG] * count), NUMBERS_ENTRY)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    words = builder.alloca(LONG, max(1, count))
    for i, number in enumerate(entry.args):
        builder.store(number, builder.gep(words, [long(i)]))
    builder.ret(builder.call(words_entry, [words]))


_HEADER = 64
"""Bytes reserved for NRT_MemInfo (up to 48) before the data of an array."""


def emit_entries(result: Any, signature: Signature) -> str:
    """Return LLVM IR for the entries of a kernel; `result` is numba's compile result."""
    context, fndesc = result.target_context, result.fndesc
    module = context.codegen().create_library("entry").create_ir_module("entry")
    kernel = context.declare_function(module, fndesc)
    _PythonEntry(module, context).write(kernel, fndesc, signature)
    emit_words_entry(module, context, kernel, fndesc, signature)
    _emit_runtime(module)
    return str(module)


class _PythonEntry:
    """Emits the entry through which Python calls a kernel."""

    def __init__(self, module: Any, context: Any) -> None:
        self._module, self._context = module, context
        entry_type = ir.FunctionType(POINTER, [POINTER, POINTER.as_pointer(), LONG])
        self._entry = ir.Function(module, entry_type, layout.ENTRY)
        self._builder = ir.IRBuilder(self._entry.append_basic_block("entry"))
        self._fail_block = self._entry.append_basic_block("fail")

    def write(self, kernel: Any, fndesc: Any, signature: Signature) -> None:
        """Emit code that reads the arguments, runs the kernel, and returns the result."""
        b, context = self._builder, self._context
        self._self_tuple, arguments, count = self._entry.args
        self._array_type = self._get_item(self._self_tuple, 0)
        self._require(b.icmp_signed("==", count, long(len(signature))))
        typed_pointers = ((b.gep(arguments, [long(i)]), kind) for i, kind in enumerate(signature))
        values = [self._read_argument(b.load(pointer), kind) for pointer, kind in typed_pointers]
        thread_state = self._call("PyEval_SaveThread", POINTER)
        status, kernel_result = context.call_conv.call_function(
            b, kernel, fndesc.restype, fndesc.argtypes, values, attrs=("noinline",)
        )
        self._call("PyEval_RestoreThread", ir.VoidType(), thread_state)
        with b.if_then(status.is_error, likely=False):  # A kernel fails only without memory.
            b.ret(self._call("PyErr_NoMemory", POINTER))
        b.ret(self._box_result(str(fndesc.restype), kernel_result))
        b.position_at_end(self._fail_block)
        type_error = self._get_item(self._self_tuple, 2)
        message = self._add_text("a kernel was called with arguments that it was not compiled for")
        self._call("PyErr_SetString", ir.VoidType(), type_error, message)
        b.ret(ir.Constant(POINTER, None))

    def _box_result(self, result_kind: str, kernel_result: Any) -> Any:
        builder = self._builder
        if result_kind == "none":
            none = self._get_item(self._self_tuple, 1)
            self._call("Py_IncRef", ir.VoidType(), none)
            return none
        if result_kind == "bool":
            return self._call("PyBool_FromLong", POINTER, builder.zext(kernel_result, LONG))
        if result_kind == "int64":
            return self._call("PyLong_FromLongLong", POINTER, kernel_result)
        raise AssertionError(f"a kernel must return None, a bool or an int, not {result_kind}")

    def _read_argument(self, argument: Any, kind: Kind) -> Any:
        builder = self._builder
        if isinstance(kind, ArrayKind):
            return self._read_array(argument, kind)
        if isinstance(kind, tuple):
            size = self._call("PyTuple_Size", LONG, argument)
            self._require(builder.icmp_signed("==", size, long(len(kind))))
            arguments = (self._get_item(argument, i) for i in range(len(kind)))
            items = list(map(self._read_argument, arguments, kind))
            return self._context.make_tuple(builder, to_numba_type(kind), items)
        if kind == "nothing":
            none = self._get_item(self._self_tuple, 1)
            self._require(builder.icmp_unsigned("==", argument, none))
            return self._context.get_dummy_value()
        if kind == "flag":
            truth = self._call("PyObject_IsTrue", INT, argument)
            self._require(builder.icmp_signed(">=", truth, ir.Constant(INT, 0)))
            return builder.icmp_signed("!=", truth, ir.Constant(INT, 0))
        number = self._call("PyLong_AsLongLong", LONG, argument)
        with builder.if_then(builder.icmp_signed("==", number, long(-1)), likely=False):
            raised = self._call("PyErr_Occurred", POINTER)
            self._require(builder.icmp_unsigned("==", raised, ir.Constant(POINTER, None)))
        return number

    def _read_array(self, array: Any, kind: ArrayKind) -> Any:
        b = self._builder
        object_type = self._load(array, layout.OBJECT_TYPE, POINTER)
        with b.if_then(b.icmp_unsigned("!=", object_type, self._array_type), likely=False):
            is_subtype = self._call("PyType_IsSubtype", INT, object_type, self._array_type)
            self._require(b.icmp_signed("!=", is_subtype, ir.Constant(INT, 0)))
        required_flags = layout.C_CONTIGUOUS if kind.layout == "C" else 0
        required_flags |= 0 if kind.readonly else layout.WRITEABLE
        flags = b.and_(self._load_field(array, "flags", INT), ir.Constant(INT, required_flags))
        ndim = self._load_field(array, "nd", INT)
        descr = self._load_field(array, "descr", POINTER)
        type_number = self._load(descr, layout.TYPE_NUMBER, INT)
        byte_order = self._load(descr, layout.BYTE_ORDER, BYTE)
        has_dtype: Any = ir.Constant(ir.IntType(1), 0)
        for n in list_type_numbers(kind.dtype):
            has_dtype = b.or_(has_dtype, b.icmp_signed("==", type_number, ir.Constant(INT, n)))
        is_valid = b.and_(has_dtype, b.icmp_signed("==", flags, ir.Constant(INT, required_flags)))
        is_valid = b.and_(is_valid, b.icmp_signed("==", ndim, ir.Constant(INT, kind.ndim)))
        swapped = ir.Constant(BYTE, layout.SWAPPED)
        self._require(b.and_(is_valid, b.icmp_signed("!=", byte_order, swapped)))
        return self._load_array(array, kind)

    def _load_array(self, array: Any, kind: ArrayKind) -> Any:
        builder = self._builder

        def load_integers(field: str) -> list[Any]:
            integers = self._load_field(array, field, LONG.as_pointer())
            return [builder.load(builder.gep(integers, [long(i)])) for i in range(kind.ndim)]

        lengths, strides = load_integers("dimensions"), load_integers("strides")
        data = self._load_field(array, "data", POINTER)
        return make_array_value(self._context, builder, kind, data, lengths, strides)

    def _require(self, condition: Any) -> None:
        """Emit a jump to the block that raises TypeError, unless `condition` holds."""
        next_block = self._entry.append_basic_block()
        self._builder.cbranch(condition, next_block, self._fail_block)
        self._builder.position_at_end(next_block)

    def _get_item(self, items: Any, i: int) -> Any:
        return self._call("PyTuple_GetItem", POINTER, items, long(i))

    def _load_field(self, array: Any, name: str, value_type: Any) -> Any:
        return self._load(array, layout.FIELDS[name], value_type)

    def _load(self, address: Any, offset: int, value_type: Any) -> Any:
        b = self._builder
        return b.load(b.bitcast(b.gep(address, [long(offset)]), value_type.as_pointer()))

    def _call(self, name: str, result_type: Any, *args: Any) -> Any:
        return self._builder.call(declare_function(self._module, name, result_type, *args), args)

    def _add_text(self, text: str) -> Any:
        content = ir.Constant(ir.ArrayType(BYTE, len(text) + 1), bytearray(text.encode() + b"\0"))
        variable = ir.GlobalVariable(self._module, content.type, "sqlml_message")
        variable.initializer, variable.linkage, variable.global_constant = content, "internal", True
        return self._builder.bitcast(variable, POINTER)


def list_type_numbers(dtype: np.dtype[Any]) -> tuple[int, ...]:
    """Return all numpy type numbers of `dtype`; several C types may have the same layout.

    >>> list_type_numbers(np.dtype(bool))
    (0,)
    """
    if dtype.kind == "V":
        return (dtype.num,)
    type_numbers = {np.dtype(code).num for code in "?bBhHiIlLqQefd" if np.dtype(code) == dtype}
    return tuple(sorted(type_numbers))


def _emit_runtime(module: Any) -> None:
    """Add the functions of numba's runtime that kernels call, implemented with malloc and free.

    A meminfo is {reference count, destructor, argument of the destructor, data, size, allocator}.
    """
    function_type = ir.FunctionType(POINTER, [LONG, INT])
    allocate = ir.Function(module, function_type, "NRT_MemInfo_alloc_aligned")
    builder = ir.IRBuilder(allocate.append_basic_block())
    size, align = allocate.args[0], builder.zext(allocate.args[1], LONG)
    total_size = builder.add(builder.add(size, align), long(_HEADER))
    memory = builder.call(declare_function(module, "malloc", POINTER, total_size), [total_size])
    null = ir.Constant(POINTER, None)
    with builder.if_then(builder.icmp_unsigned("==", memory, null), likely=False):
        builder.ret(null)
    words = builder.bitcast(memory, LONG.as_pointer())
    data = builder.add(builder.ptrtoint(memory, LONG), long(_HEADER))
    data = builder.and_(builder.sub(builder.add(data, align), long(1)), builder.neg(align))
    for index, word in enumerate((long(1), long(0), long(0), data, size, long(0))):
        builder.store(word, builder.gep(words, [long(index)]))
    builder.ret(memory)
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(free.append_basic_block())
    builder.call(declare_function(module, "free", ir.VoidType(), free.args[0]), [free.args[0]])
    builder.ret_void()
