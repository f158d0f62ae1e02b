"""Choose how a Program runs: the requested or else the cheapest backend, strategy and device.

The plan records the choice, with its reason and the estimates of the alternatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlml.backends.base import BACKENDS, load_backend
from sqlml.backends.costs import current_costs
from sqlml.bounded_cache import cache_by_program
from sqlml.errors import BackendError, ConfigError, MissingDependencyError
from sqlml.ir.operators.opaque import NATIVE_ONLY, OWNING_BACKENDS
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes import TENSOR_PASSES, run
from sqlml.passes.lower import explain_refusal, lower
from sqlml.planner.program.cost import BATCH, ROWS, CostEstimate, estimate_sql, estimate_ways

OPTIONS = ("backend", "strategy", "device")
DEVICES = ("auto", "cpu", "cuda")
MAX_BATCH_ROWS = 100_000_000
STRATEGIES = ("auto", *dict.fromkeys(s for entry in BACKENDS.values() for s in entry.strategies))
SQL_BACKEND = "sql"
"""The backend of SQL expressions, which the engine itself evaluates."""

BACKEND_NAMES = ("auto", SQL_BACKEND, *BACKENDS)

SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "backend": BACKEND_NAMES,
        "strategy": STRATEGIES,
        "device": DEVICES,
        "route": ("auto", "native", "arrow"),
        "approximate": ("true", "false"),
    }
)
"""Name of a setting (`SET sqlml_...`) -> allowed values. All but route are also model options."""


def change_setting(settings: Mapping[str, str], name: str, value: Any) -> Mapping[str, str]:
    """Return a copy of `settings` with `name` set to `value`, or removed if `value` is None."""
    allowed = SETTINGS.get(name)
    if allowed is None:
        setting_names = ", ".join(f"sqlml_{option}" for option in SETTINGS)
        raise ConfigError(f"unknown setting sqlml_{name}; settings: {setting_names}")
    other_settings = {k: v for k, v in settings.items() if k != name}
    if value is None:
        return other_settings
    text = str(value).lower() if isinstance(value, str | bool) else ""
    if text not in allowed:
        raise ConfigError(f"unknown {name} {value!r}; sqlml_{name} takes {', '.join(allowed)}")
    return {**other_settings, name: text}


def read_batch_size(options: Mapping[str, Any]) -> int | None:
    """Return the option `batch_size`, the maximum number of rows per batch, or None if unset."""
    batch_rows = options.get("batch_size")
    is_valid = type(batch_rows) is int and 0 < batch_rows <= MAX_BATCH_ROWS
    if batch_rows is not None and not is_valid:
        raise ConfigError(
            f"option batch_size must be a number of rows from 1 to {MAX_BATCH_ROWS}, not "
            f"{batch_rows!r}"
        )
    return batch_rows


def may_approximate(options: Mapping[str, Any], argument: bool | None) -> bool:
    """Return whether `argument`, or the model's option if that is None, allows approximation."""
    return str(options.get("approximate")).lower() == "true" if argument is None else argument


def asks_for_sql(options: Mapping[str, Any]) -> bool:
    return str(options.get("backend", "auto")).lower() == SQL_BACKEND


def allows_sql(options: Mapping[str, Any]) -> bool:
    return all(str(options.get(name, "auto")).lower() == "auto" for name in OPTIONS)


@dataclass(frozen=True, slots=True)
class Choice:
    """The backend, strategy and device that run a Program, and the reason for choosing them."""

    backend: str
    strategy: str
    device: str
    reason: str
    # The estimated times for `rows` rows, beginning with the chosen way. Empty if the options allow
    # only one way.
    estimates: tuple[CostEstimate, ...] = ()
    rows: int = ROWS
    guarded: bool = True  # If the backend is SQL, rows that it cannot score go to a function.


def choose_way(
    program: Program,
    options: Mapping[str, Any],
    rows: int = ROWS,
    batch: int = BATCH,
    by_column: bool = False,
) -> Choice:
    """Choose how to run `program` with the options `backend`, `strategy` and `device`.

    Each option is "auto" by default. If the backend is "sql", the choice applies to the rows that
    the SQL expression leaves to a function. A GPU is only faster if `batch`, the number of rows per
    call, is large. If `by_column` is true, rows reach the function as columns, not through Arrow.

    Raises ConfigError for an unknown name, BackendError if the trees are too large for the
    strategy, and MissingDependencyError if a backend is not installed.
    """
    backend, strategy, device = _read_options(options)
    if backend == SQL_BACKEND:
        return choose_way(program, {**options, "backend": "auto"}, rows, batch, by_column)
    if any(node.op in NATIVE_ONLY for node in program.nodes):
        explains = any(
            node.op != "by_partition" for node in program.nodes if node.op in NATIVE_ONLY
        )
        purpose = "explains" if explains else "has a model per partition"
        return Choice("native", "traverse", "cpu", f"the one backend that {purpose}")
    owning_backends = [OWNING_BACKENDS[n.op] for n in program.nodes if n.op in OWNING_BACKENDS]
    if backend == "auto" and owning_backends:
        reason = "the one backend that runs this kind of model"
        return _choose_for_backend(program, owning_backends[0], strategy, device, reason)
    if backend == "auto" or strategy == "auto":
        estimates = tuple(
            estimate
            for estimate in _estimate_ways(program, rows, batch, by_column)
            if backend in ("auto", estimate.backend)
            and strategy in ("auto", estimate.strategy)
            and device in ("auto", estimate.device)
        )
        if (cheapest := _choose_cheapest(program, estimates, rows)) is not None:
            return cheapest
    if backend != "auto":
        return _choose_for_backend(program, backend, strategy, device)
    return _choose_infeasible(program, strategy, device)


def _choose_infeasible(program: Program, strategy: str, device: str) -> Choice:
    """Return a choice for options that no backend supports, so that compiling raises the error."""
    is_native = strategy in ("auto", *BACKENDS["native"].strategies)
    backend = "native" if is_native and device != "cuda" else "torch"
    try:
        return _choose_for_backend(program, backend, strategy, device)
    except MissingDependencyError as error:
        raise MissingDependencyError(
            f"the options strategy = {strategy!r} and device = {device!r} need a backend that is "
            f"not installed: {error.message}; or RESET sqlml_strategy, RESET sqlml_device, or the "
            "model's own OPTIONS"
        ) from None


def _read_options(options: Mapping[str, Any]) -> tuple[str, str, str]:
    plurals = {"backend": "backends", "device": "devices", "strategy": "strategies"}
    values = {option: str(options.get(option, "auto")).lower() for option in plurals}
    for option, value in values.items():
        if value not in SETTINGS[option]:
            known_names = ", ".join(SETTINGS[option])
            raise ConfigError(f"unknown {option} {value!r}; {plurals[option]}: {known_names}")
    return values["backend"], values["strategy"], values["device"]


def _choose_cheapest(
    program: Program, estimates: tuple[CostEstimate, ...], rows: int
) -> Choice | None:
    for way in estimates:
        if way.backend == "native" or _is_supported(program, way):
            others = tuple(other for other in estimates if other is not way)
            reason = "the least estimated time" if others else "the one way that fits the options"
            return Choice(way.backend, way.strategy, way.device, reason, (way, *others), rows)
    return None


@cache_by_program
def _estimate_ways(
    program: Program, rows: int, batch: int, by_column: bool
) -> tuple[CostEstimate, ...]:
    return estimate_ways(program, current_costs(), rows, batch, by_column)


@cache_by_program
def _is_supported(program: Program, estimate: CostEstimate) -> bool:
    if estimate.seconds == float("inf"):
        return False
    if BACKENDS[estimate.backend].level == "tensor":
        program = run(lower(program, estimate.strategy), passes=TENSOR_PASSES)
    return load_backend(estimate.backend).supports(program) is None


def _choose_for_backend(
    program: Program, backend: str, strategy: str, device: str, reason: str = "requested"
) -> Choice:
    """Choose `backend`, with the best strategy and the CPU in place of "auto"."""
    load_backend(backend)  # Raises an error if it is not installed.
    strategies = BACKENDS[backend].strategies
    if strategy == "auto":
        strategy = _choose_tree_strategy(program, strategies)
    elif strategy not in strategies:
        raise ConfigError(
            f"backend {backend!r} has no strategy {strategy!r}; strategies: "
            f"{', '.join(strategies)}, auto (backends: {', '.join(BACKENDS)})"
        )
    elif (refusal := _find_refusal(program, strategy)) is not None:
        raise BackendError(refusal)
    return Choice(backend, strategy, "cpu" if device == "auto" else device, reason)


_find_refusal = cache_by_program(explain_refusal)


def _choose_tree_strategy(program: Program, strategies: tuple[str, ...]) -> str:
    """Choose the first of `strategies`, or GEMM, PTT or TT by depth (Hummingbird, section 5.1)."""
    ensembles = [Ensemble.of(n.attrs) for n in program.nodes if n.op == "tree_ensemble"]
    has_category_sets = any(e.has_categories for e in ensembles)
    if "gemm" not in strategies or (strategies[0] == "traverse" and not has_category_sets):
        return strategies[0]
    depth = max((e.depth for e in ensembles), default=0)
    return "gemm" if depth <= 3 else "ptt" if depth <= 10 else "tt"


MIN_ROWS, MAX_ROWS = 1, 1_000_000_000


def depends_on_rows(program: Program, options: Mapping[str, Any]) -> bool:
    """Return whether the fastest choice that the options allow depends on the number of rows.

    Times are nearly linear in the number of rows. So a choice that is fastest for both the fewest
    and the most rows is fastest for any number of rows.
    """
    values = tuple(str(options.get(name, "auto")).lower() for name in OPTIONS)
    return "auto" in values and _depends_on_rows(program, values)


@cache_by_program
def _depends_on_rows(program: Program, values: tuple[str, ...]) -> bool:
    options = dict(zip(OPTIONS, values, strict=True))
    choices = [choose_way(program, options, rows) for rows in (ROWS, MIN_ROWS, MAX_ROWS)]
    return len({(c.backend, c.strategy, c.device) for c in choices}) > 1


def estimate_choice(
    program: Program, choice: Choice, rows: int, by_column: bool, num_texts: int = 0
) -> Choice:
    """Return `choice` with the estimated times for `rows` rows. The chosen way remains first.

    The time in which a function looks up `num_texts` strings of each row is added to all estimates
    except that of SQL.
    """
    if not choice.estimates or (choice.rows == rows and not num_texts):
        return choice
    costs = current_costs()
    text_cost = costs["column.text" if by_column else "udf.text"]
    text_seconds = rows * num_texts * text_cost * 1e-9
    new_estimates = estimate_ways(program, costs, rows, by_column=by_column)
    estimate_by_way = {(e.backend, e.strategy, e.device): e for e in new_estimates}

    def rescale(estimate: CostEstimate) -> CostEstimate:
        if estimate.backend == SQL_BACKEND:
            return estimate_sql(program, costs, rows)
        way = (estimate.backend, estimate.strategy, estimate.device)
        estimate = estimate_by_way.get(way, estimate)
        return replace(estimate, seconds=estimate.seconds + text_seconds)

    first_estimate, *other_estimates = map(rescale, choice.estimates)
    other_estimates.sort(key=lambda e: e.start + e.seconds)
    return replace(choice, estimates=(first_estimate, *other_estimates), rows=rows)


@dataclass(frozen=True, slots=True)
class Route:
    """The route on which rows get from the engine to a function and back.

    If `by_column` is true, machine code gets each column as an argument and reads it in place. If
    there is also a `python_reason`, the machine code calls Python for each batch. If `by_column` is
    false, Arrow passes batches to Python, whose lock only one thread can hold at a time.
    """

    by_column: bool
    python_reason: str | None

    @property
    def name(self) -> str:
        """
        >>> [Route(True, None).name, Route(True, "..").name, Route(False, "..").name]
        ['native', 'native with python', 'arrow']
        """
        native_name = "native" if self.python_reason is None else "native with python"
        return native_name if self.by_column else "arrow"

    @property
    def is_temporary(self) -> bool:
        """True if kernels are still being compiled, so a better route will soon be possible."""
        return self.python_reason == COMPILING

    def __str__(self) -> str:
        if not self.by_column:
            return f"Arrow and Python: {self.python_reason}"
        if self.python_reason is None:
            return "native, without Python"
        return f"native, but Python scores the packed rows: {self.python_reason}"


COMPILING = "its kernels are being compiled, once on this machine"
ARROW = Route(False, "this engine has no other route")
