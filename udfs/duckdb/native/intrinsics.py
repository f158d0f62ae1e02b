"""What the row path does besides arithmetic and reading memory: call Python, and count.

Each is an intrinsic of numba: a function that emits LLVM IR.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from sqlml.backends.native.jit.helpers import intrinsic
from sqlml.backends.native.jit.llvm_values import INT, LONG, POINTER, declared, long
from sqlml.backends.native.jit.process_memory import integers


def _exchange(typing: Any, address: Any, number: Any) -> Any:
    """Put a word at an address; the word that was there. All threads agree what came before."""

    def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        place = b.inttoptr(arguments[0], LONG.as_pointer())
        return b.atomic_rmw("xchg", place, arguments[1], "seq_cst")

    return integers(2), generate


def _add(typing: Any, address: Any, number: Any) -> Any:
    """Add to the word at an address atomically, whatever other threads do; the word that was
    there."""

    def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        place = b.inttoptr(arguments[0], LONG.as_pointer())
        return b.atomic_rmw("add", place, arguments[1], "seq_cst")

    return integers(2), generate


def _python(typing: Any, function: Any, died: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """What a Python function returns for four numbers, called under the GIL; 0 if it raises.

    A signal handler may raise at its first instruction, before any `try`: then `died` is called,
    with b and the class of the exception.
    """
    return integers(6), _call_python


def _call_python(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
    import numba.core.cgutils

    cgutils: Any = numba.core.cgutils

    def api(name: str, result: Any, *given: Any) -> Any:
        return b.call(declared(b.module, name, result, *given), given)

    def call(function: Any, items: list[Any]) -> Any:
        held = cgutils.alloca_once(b, ir.ArrayType(POINTER, len(items)))
        for place, item in enumerate(items):
            b.store(item, cgutils.gep_inbounds(b, held, 0, place))
        first = b.bitcast(held, POINTER.as_pointer())
        called = b.inttoptr(function, POINTER)
        made = api("PyObject_Vectorcall", POINTER, called, first, long(len(items)), nothing)
        for item in items:
            api("Py_DecRef", ir.VoidType(), item)
        return made

    nothing = ir.Constant(POINTER, None)
    function, died, *numbers = arguments
    result = cgutils.alloca_once_value(b, long(0))
    state = api("PyGILState_Ensure", INT)
    made = call(function, [api("PyLong_FromLongLong", POINTER, n) for n in numbers])
    with b.if_else(b.icmp_unsigned("==", made, nothing)) as (failed, returned):
        with failed:
            kind = api("PyErr_Occurred", POINTER)
            api("Py_IncRef", ir.VoidType(), kind)
            api("PyErr_Clear", ir.VoidType())
            told = call(died, [api("PyLong_FromLongLong", POINTER, numbers[1]), kind])
            api("PyErr_Clear", ir.VoidType())
            with b.if_then(b.icmp_unsigned("!=", told, nothing)):
                api("Py_DecRef", ir.VoidType(), told)
        with returned:
            b.store(api("PyLong_AsLongLong", LONG, made), result)
            api("Py_DecRef", ir.VoidType(), made)
    api("PyGILState_Release", ir.VoidType(), state)
    return b.load(result)


python = intrinsic(_python)
add, exchange = intrinsic(_add), intrinsic(_exchange)
