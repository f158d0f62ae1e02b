"""Kernel calls of exported models, their argument checks, and damaged calls that are accepted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sqlml.backends.native.argument_checks import machine_check, row_checks, text_checks
from sqlml.backends.native.jit.specialise import find_entry
from sqlml.backends.native.kernel_calls import MEMORY, SCRATCH, Call, Rows
from sqlml.importers.registry import import_model
from sqlml.udfs.duckdb.native.exported_functions import make_exported_functions
from sqlml.udfs.duckdb.native.plan_bytecode import VECTOR_ROWS, build_plan
from tests.support.damaged_calls import Rng, damage_call, make_rows
from tests.support.guarded_arrays import (
    SIDES,
    Array,
    is_accepted,
    list_arguments,
    load_guarded_kernel,
    replace_constants,
    run_call,
    set_allocation_side,
)
from tests.support.tree_calls import find_check

Check = Callable[..., Any]

_ROWS, _UDFS = "backends.native.rows.", "udfs.duckdb.native."

CHECKS: Mapping[str, Check] = {
    _ROWS + "column_kernels._convert": row_checks.check_convert,
    _ROWS + "column_kernels._take": row_checks.check_take,
    _ROWS + "column_kernels._shift": row_checks.check_shift,
    _ROWS + "column_kernels._impute": row_checks.check_impute,
    _ROWS + "column_kernels._one_hot": row_checks.check_first_columns,
    _ROWS + "column_kernels._argmax": row_checks.check_first_columns,
    _ROWS + "column_kernels._has_infinity": row_checks.check_read_rows,
    _ROWS + "column_kernels._has_nan_times_zero": row_checks.check_read_rows,
    _ROWS + "column_kernels._is_outside": row_checks.check_limits,
    _ROWS + "column_kernels._map": row_checks.check_map,
    _ROWS + "column_kernels._normalise": row_checks.check_normalise,
    _ROWS + "linear_kernels._one_output": row_checks.check_linear,
    _ROWS + "linear_kernels._outputs": row_checks.check_linear,
    _ROWS + "distance_kernels._pairwise": row_checks.check_pairwise,
    _ROWS + "distance_kernels._find_nearest": row_checks.check_nearest,
    _ROWS + "first_nearest._find_first": row_checks.check_first_nearest,
    _ROWS + "weighted_median._find_medians": row_checks.check_medians,
    _ROWS + "number_codes._look_up": row_checks.check_number_codes,
    _ROWS + "normal_distribution._find_probabilities": row_checks.check_equal_widths,
    _ROWS + "normal_distribution._find_quantiles": row_checks.check_quantiles,
    _ROWS + "piecewise_kernels._search": row_checks.check_search,
    _ROWS + "piecewise_kernels._interpolate": row_checks.check_interpolate,
    _ROWS + "piecewise_kernels._bspline": row_checks.check_bspline,
    _ROWS + "combinations.find_combinations": row_checks.check_combinations,
    _ROWS + "sparse._fill": row_checks.check_repeated_row,
    _ROWS + "sparse._add": row_checks.check_repeated_row,
    _ROWS + "sparse._add_products": row_checks.check_products,
    _ROWS + "matmul_tiles._norms": row_checks.check_norms,
    "backends.native.vm.register_machine._run": machine_check.check_machine,
    "backends.native.text.linear_of_texts.add_text_sums": text_checks.check_text_sums,
    "backends.native.text.city_hash.hash_texts": text_checks.check_text_hashes,
    "backends.native.text.city_hash.hash_numbers": row_checks.check_first_columns,
    _UDFS + "plan_bytecode.look_up": text_checks.check_text_codes,
    _UDFS + "plan_bytecode.find_ends": text_checks.check_text_bounds,
}
"""Maps a kernel to the check of its arguments; those of trees are in `tree_calls.py`."""


def name_kernel(call: Call) -> str:
    """Return the name of a call's kernel, as in `CHECKS`."""
    entry = find_entry(call.kernel)
    assert entry is not None
    module = entry.function.__module__.removeprefix("sqlml.")
    return f"{module}.{entry.function.__name__}"


def list_exported_calls(model: Any) -> Iterator[Call]:
    """Yield the kernel calls of the functions that a model is exported as."""
    imported = import_model(model)
    for exported in make_exported_functions(imported.program, imported.features, "m", {}):
        plan = build_plan(exported.function, VECTOR_ROWS, build_plan(exported.function, 1))
        for calls in dict.fromkeys((plan.small_calls, plan.large_calls)):
            yield from () if calls is None else calls.calls


def find_calls(model: Any, name: str) -> list[Call]:
    """Return the calls of the kernels whose name ends with `name` in an exported model."""
    return [call for call in list_exported_calls(model) if name_kernel(call).endswith(name)]


def is_safe(call: Call) -> bool:
    """Return what the check of a call's kernel says; the whole memory must not be read."""
    hidden = Rows(SCRATCH + 99, np.dtype(np.uint8), 1, is_flat=True)
    items = list_arguments(call.arguments)
    call = replace_constants(call, {k: hidden for k, a in enumerate(items) if a is MEMORY})
    check = CHECKS.get(name_kernel(call)) or find_check(call)
    assert check is not None, name_kernel(call)
    return is_accepted(check, call, padding=0)


def has_rows_where_annotated(call: Call) -> bool:
    """Return True if a call has rows exactly where the parameters of its check are `Rows`.

    Of the parameters that are `RowsOrNothing`, one has rows, and the others have no items.
    """
    roles = [p.annotation for p in inspect.signature(CHECKS[name_kernel(call)]).parameters.values()]
    has_rows = [isinstance(argument, Rows) for argument in call.arguments]
    optional = [k for k, role in enumerate(roles) if role == "RowsOrNothing"]
    rest = [call.arguments[k] for k in optional if not has_rows[k]]
    return (
        all(has_rows[k] == (role == "Rows") for k, role in enumerate(roles) if k not in optional)
        and len(rest) == max(0, len(optional) - 1)
        and all(array.size == 0 for array in rest)
    )


def load_guarded(calls: Sequence[Call]) -> Mapping[Any, Any]:
    """Map the kernels of calls to kernels whose scratch arrays are guarded."""
    kernels = dict.fromkeys(call.kernel for call in calls)
    entries = {kernel: find_entry(kernel) for kernel in kernels}
    return {
        kernel: load_guarded_kernel(entry.function, entry.signature)
        for kernel, entry in entries.items()
        if entry is not None
    }


COUNTS = (0, 1, 7, 64, 700)
"""Numbers of rows for which kernels are called."""


def run_damaged(
    calls: Sequence[Call],
    case: int,
    guarded: Mapping[Any, Any] | None = None,
    damage: Callable[[Call, Rng], Call] = damage_call,
) -> bool:
    """Damage one of the calls; if its check accepts it, run it. Return whether it was accepted.

    `guarded` is a result of `load_guarded`. Kernels of rows, and the register
    machine, do not need the bytes beyond the end of a constant.
    """
    rng = np.random.default_rng(case)
    call = damage(calls[int(rng.integers(len(calls)))], rng)
    if not is_safe(call):
        return False

    def fill(rows: Rows, count: int) -> Array:
        return make_rows(rows, count, rng, np.arange(-2.0, 12.0))

    for side in SIDES:
        set_allocation_side(side)
        counts = [int(rng.choice(COUNTS))]
        run_call(call, counts, fill, side, (guarded or {}).get(call.kernel), padding=0)
    return True
