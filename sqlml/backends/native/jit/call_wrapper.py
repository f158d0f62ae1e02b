"""Emit the entry of a kernel, through which machine code can call it without numba.

Kernels allocate memory with numba's runtime. The functions that they need are emitted here, too;
they use malloc.
"""

from __future__ import annotations

import itertools
from typing import Any

from llvmlite import ir

from sqlml.backends.native.jit.argument_kinds import ArrayKind, Kind, Signature, to_numba_type
from sqlml.backends.native.jit.processor_levels import LINE_BYTES

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


def transpose_vectors(builder: Any, vectors: list[Any]) -> list[Any]:
    """Emit the columns of a square, given the rows as vectors: interleave row i with row i + half.

    The number of vectors, and of their lanes, is a power of two.
    """
    side, half = len(vectors), len(vectors) // 2
    low = [i // 2 + (i % 2) * side for i in range(side)]
    mask_type = ir.VectorType(INT, side)
    masks = [ir.Constant(mask_type, mask) for mask in (low, [i + half for i in low])]
    for _ in range(side.bit_length() - 1):
        pairs = [(vectors[i], vectors[i + half]) for i in range(half)]
        vectors = [builder.shuffle_vector(*pair, mask) for pair in pairs for mask in masks]
    return vectors


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

RESULT_KIND = "sqlml_kernel_result"
"""The symbol of the kind of the kernel's result, a value of RESULTS."""

RESULTS = {"none": 0, "bool": 1, "int64": 2}
"""Maps numba's names of result types to kinds of results in `runtime.c`."""

NUMBERS_ENTRY = "sqlml_kernel_numbers"
"""The symbol of the entry of a kernel whose arguments are all counts: a C function of int64."""

NO_MEMORY = -(1 << 63)


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
    emit_words_entry(module, context, kernel, fndesc, signature)
    result_kind = ir.GlobalVariable(module, LONG, RESULT_KIND)
    result_kind.initializer = long(RESULTS[str(fndesc.restype)])
    _emit_runtime(module)
    return str(module)


def _emit_runtime(module: Any) -> None:
    """Add the functions of numba's runtime that kernels call, implemented with malloc and free.

    A meminfo is {reference count, destructor, argument of the destructor, data, size, allocator}.
    Arrays begin at a cache line. numba asks for 32 bytes only. With that, a vector of 64 bytes
    crosses two lines in about half of all processes, and forests take 20 to 30% longer.
    """
    function_type = ir.FunctionType(POINTER, [LONG, INT])
    allocate = ir.Function(module, function_type, "NRT_MemInfo_alloc_aligned")
    builder = ir.IRBuilder(allocate.append_basic_block())
    size = allocate.args[0]
    total_size = builder.add(size, long(_HEADER + LINE_BYTES))
    memory = builder.call(declare_function(module, "malloc", POINTER, total_size), [total_size])
    null = ir.Constant(POINTER, None)
    with builder.if_then(builder.icmp_unsigned("==", memory, null), likely=False):
        builder.ret(null)
    words = builder.bitcast(memory, LONG.as_pointer())
    data = builder.add(builder.ptrtoint(memory, LONG), long(_HEADER))
    data = builder.and_(builder.add(data, long(LINE_BYTES - 1)), long(-LINE_BYTES))
    for index, word in enumerate((long(1), long(0), long(0), data, size, long(0))):
        builder.store(word, builder.gep(words, [long(index)]))
    builder.ret(memory)
    free = ir.Function(module, ir.FunctionType(ir.VoidType(), [POINTER]), "NRT_MemInfo_call_dtor")
    builder = ir.IRBuilder(free.append_basic_block())
    builder.call(declare_function(module, "free", ir.VoidType(), free.args[0]), [free.args[0]])
    builder.ret_void()
