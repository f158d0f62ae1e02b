"""The argument check of each kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlml.backends.native.argument_checks.contribution_checks import (
    check_contributions,
    check_leaf_models,
)
from sqlml.backends.native.argument_checks.lockstep_check import check_lockstep
from sqlml.backends.native.argument_checks.machine_check import check_machine
from sqlml.backends.native.argument_checks.row_checks import (
    check_bspline,
    check_combinations,
    check_convert,
    check_equal_widths,
    check_first_columns,
    check_first_nearest,
    check_impute,
    check_interpolate,
    check_limits,
    check_linear,
    check_map,
    check_medians,
    check_nearest,
    check_normalise,
    check_norms,
    check_number_codes,
    check_pairwise,
    check_products,
    check_quantiles,
    check_read_rows,
    check_repeated_row,
    check_search,
    check_shift,
    check_take,
)
from sqlml.backends.native.argument_checks.text_checks import (
    check_text_bounds,
    check_text_codes,
    check_text_hashes,
    check_text_sums,
)
from sqlml.backends.native.argument_checks.tree_checks import (
    check_cursor_forest,
    check_descent_forest,
)

CHECKS: Mapping[str, Callable[..., Any]] = {
    "rows.column_kernels._argmax": check_first_columns,
    "rows.column_kernels._convert": check_convert,
    "rows.column_kernels._has_infinity": check_read_rows,
    "rows.column_kernels._has_nan_times_zero": check_read_rows,
    "rows.column_kernels._impute": check_impute,
    "rows.column_kernels._is_outside": check_limits,
    "rows.column_kernels._map": check_map,
    "rows.column_kernels._normalise": check_normalise,
    "rows.column_kernels._one_hot": check_first_columns,
    "rows.column_kernels._shift": check_shift,
    "rows.column_kernels._take": check_take,
    "rows.combinations.find_combinations": check_combinations,
    "rows.distance_kernels._find_nearest": check_nearest,
    "rows.first_nearest._find_first": check_first_nearest,
    "rows.distance_kernels._pairwise": check_pairwise,
    "rows.linear_kernels._one_output": check_linear,
    "rows.linear_kernels._outputs": check_linear,
    "rows.matmul_tiles._norms": check_norms,
    "rows.normal_distribution._find_probabilities": check_equal_widths,
    "rows.normal_distribution._find_quantiles": check_quantiles,
    "rows.number_codes._look_up": check_number_codes,
    "rows.piecewise_kernels._bspline": check_bspline,
    "rows.piecewise_kernels._interpolate": check_interpolate,
    "rows.piecewise_kernels._search": check_search,
    "rows.sparse._add": check_repeated_row,
    "rows.sparse._add_products": check_products,
    "rows.sparse._fill": check_repeated_row,
    "rows.weighted_median._find_medians": check_medians,
    "text.city_hash.hash_numbers": check_first_columns,
    "text.city_hash.hash_texts": check_text_hashes,
    "text.linear_of_texts.add_text_sums": check_text_sums,
    "trees.contribution_kernel.contributions": check_contributions,
    "trees.cursor_forest.score": check_cursor_forest,
    "trees.descent_forest.score": check_descent_forest,
    "trees.linear_leaves._add_leaf_models": check_leaf_models,
    "trees.lockstep.score": check_lockstep,
    "vm.register_machine._run": check_machine,
    "udfs.duckdb.native.plan_bytecode.find_ends": check_text_bounds,
    "udfs.duckdb.native.plan_bytecode.look_up": check_text_codes,
}
"""Maps a kernel, as its module and its name, to the check of its arguments. The modules are those
below `sqlml.backends.native`, or else below `sqlml`."""


def find_argument_check(module: str, name: str) -> Callable[..., Any] | None:
    """Return the check of a kernel's arguments, or None if exported models may not call it."""
    path = module.removeprefix("sqlml.").removeprefix("backends.native.")
    return CHECKS.get(f"{path}.{name}")
