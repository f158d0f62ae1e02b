"""Measure on this machine the costs that `backends.costs` ships for another one."""

from __future__ import annotations

from sqlml.backends.costs import SHIPPED, save_costs
from sqlml.backends.no_wait import wait_for_kernels
from sqlml.long_work import long_work, show_stage
from sqlml.tools.calibration.backends import measure_backends
from sqlml.tools.calibration.engine_costs import measure_engine

MAX_RATIO = 50.0
"""Slopes are dropped if noise has made them this many times smaller or larger than shipped ones."""


def calibrate() -> dict[str, float]:
    """Measure DuckDB and each installed backend, and save the costs for later choices.

    Takes about two seconds of measuring, besides loading libraries and, the first time, compiling
    kernels.

    Returns:
        The measured nanoseconds by the name of the cost.

    Raises:
        OSError: the file for the costs cannot be written.
    """
    with wait_for_kernels(), long_work("measuring this machine"):
        show_stage("backends")
        costs = measure_backends()
        show_stage("DuckDB")
        costs |= measure_engine()
    measured = {
        name: round(value, 6)
        for name, value in costs.items()
        if SHIPPED[name] / MAX_RATIO < value < SHIPPED[name] * MAX_RATIO
    }
    save_costs(measured)
    return measured
