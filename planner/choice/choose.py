"""Choose backend, strategy and device for a Program: what the user asks for, else the cheapest way.

What is decided is written in the Plan, with the reason and the estimates of the ways that lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from sqlml.backends.base import BACKENDS, load
from sqlml.backends.costs import current
from sqlml.bounded_cache import of_programs
from sqlml.errors import BackendError, ConfigError, MissingDependencyError
from sqlml.ir.operators.opaque import NATIVE_ALONE, OWNERS
from sqlml.ir.program import Program
from sqlml.ir.trees import Ensemble
from sqlml.passes.lower import lower, refusal
from sqlml.passes.order import TENSOR_PASSES, run
from sqlml.planner.choice.cost import BATCH, ROWS, Estimate, estimates

# The settings that choose how a model runs: their names, their values, and what they leave open.
#
# A session sets them with `SET sqlml_..`, a model with `OPTIONS (..)`; only a session sets the
# route.


OPTIONS = ("backend", "strategy", "device")
DEVICES = ("auto", "cpu", "cuda")
MOST_ROWS = 100_000_000
STRATEGIES = ("auto", *dict.fromkeys(s for entry in BACKENDS.values() for s in entry.strategies))
SQL = "sql"
"""The backend of expressions, in which the engine itself does all the work."""
NAMES = ("auto", SQL, *BACKENDS)
"""What the option `backend` takes."""
ROUTES = ("auto", "native", "arrow")
"""How rows may reach a function (`planner.program.route`)."""

SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "backend": NAMES,
        "strategy": STRATEGIES,
        "device": DEVICES,
        "route": ROUTES,
        "approximate": ("true", "false"),
    }
)
"""The settings of a session, and what each of them takes."""


def with_setting(settings: Mapping[str, str], name: str, value: Any) -> Mapping[str, str]:
    """The options of a session with `name` set, or (None) without it.

    Raises:
        ConfigError: unknown option or value.
    """
    known = SETTINGS.get(name)
    if known is None:
        raise ConfigError(
            f"unknown setting sqlml_{name}; settings: "
            + ", ".join(f"sqlml_{option}" for option in SETTINGS)
        )
    others = {k: v for k, v in settings.items() if k != name}
    if value is None:
        return others
    text = str(value).lower() if isinstance(value, str | bool) else ""
    if text not in known:
        raise ConfigError(f"unknown {name} {value!r}; sqlml_{name} takes {', '.join(known)}")
    return {**others, name: text}


def batch_rows(options: Mapping[str, Any]) -> int | None:
    """The most rows to score at once, from the option `batch_size`; None leaves it to the engine.

    Raises:
        ConfigError: it is not a number of rows from 1 to `MOST_ROWS`.
    """
    rows = options.get("batch_size")
    if rows is not None and (type(rows) is not int or not 0 < rows <= MOST_ROWS):
        raise ConfigError(
            f"option batch_size must be a number of rows from 1 to {MOST_ROWS}, not {rows!r}"
        )
    return rows


def may_approximate(options: Mapping[str, Any], asked: bool | None) -> bool:
    """Whether a call may be answered by a cascade.

    Args:
        options: of the model, and those of the session in their place.
        asked: what the call says of itself.
    """
    return str(options.get("approximate")).lower() == "true" if asked is None else asked


def asks_for_sql(options: Mapping[str, Any]) -> bool:
    """Whether the user's options say that the model is to be written as SQL."""
    return str(options.get("backend", "auto")).lower() == SQL


def leaves_open(options: Mapping[str, Any]) -> bool:
    """Whether the user's options let a model be written as SQL."""
    return all(str(options.get(name, "auto")).lower() == "auto" for name in OPTIONS)


@dataclass(frozen=True, slots=True)
class Choice:
    """How a Program is run, and why; `estimates` are the ways that were compared for `rows` rows,
    the chosen one first; there are none if the user's options leave only one way.
    `guarded`: with backend "sql", rows that the expression cannot score go to a function.
    """

    backend: str
    strategy: str
    device: str
    reason: str
    estimates: tuple[Estimate, ...] = ()
    rows: int = ROWS
    guarded: bool = True


def choose(
    program: Program,
    options: Mapping[str, Any],
    rows: int = ROWS,
    batch: int = BATCH,
    by_column: bool = False,
) -> Choice:
    """Resolve `backend`, `strategy` and `device` ("auto" by default) for `rows` rows of `program`.

    They come `batch` at a time, by Arrow or `by_column`: a GPU pays only where these are many. Of
    backend "sql" it is the choice for rows that an expression leaves to a function.

    Raises:
        ConfigError: an unknown name, or a strategy that the backend does not have.
        BackendError: the trees are too large for the strategy.
        MissingDependencyError: the backend's library is not installed.
    """
    backend = str(options.get("backend", "auto")).lower()
    strategy = str(options.get("strategy", "auto")).lower()
    device = str(options.get("device", "auto")).lower()
    if backend not in NAMES:
        raise ConfigError(f"unknown backend {backend!r}; backends: {', '.join(NAMES)}")
    if device not in DEVICES:
        raise ConfigError(f"unknown device {device!r}; devices: {', '.join(DEVICES)}")
    if strategy not in STRATEGIES:
        raise ConfigError(f"unknown strategy {strategy!r}; strategies: {', '.join(STRATEGIES)}")
    if backend == SQL:
        return choose(program, {**options, "backend": "auto"}, rows, batch, by_column)
    if any(node.op in NATIVE_ALONE for node in program.nodes):  # whatever the model's own options
        return Choice("native", "traverse", "cpu", "the one backend that explains")
    owner = next((OWNERS[n.op] for n in program.nodes if n.op in OWNERS), None)
    if backend == "auto" and owner is not None:
        why = "the one backend that runs this kind of model"
        return Choice(owner, _strategy(program, owner, strategy), _cpu(device), why)
    if backend == "auto" or strategy == "auto":
        weighed = tuple(
            e
            for e in _weighed(program, rows, batch, by_column)
            if backend in ("auto", e.backend)
            and strategy in ("auto", e.strategy)
            and device in ("auto", e.device)
        )
        for best in weighed:
            if best.backend == "native" or _runs(program, best):
                rest = tuple(e for e in weighed if e is not best)
                why = "the least estimated time" if rest else "the one way that fits the options"
                return Choice(best.backend, best.strategy, best.device, why, (best, *rest), rows)
    why = "asked for"
    if backend != "auto":
        return Choice(backend, _strategy(program, backend, strategy), _cpu(device), why)
    # No way fits, say for want of a GPU: the backend says so, and what to do.
    own = strategy in ("auto", *BACKENDS["native"].strategies)
    backend = "native" if own and device != "cuda" else "torch"
    try:
        return Choice(backend, _strategy(program, backend, strategy), _cpu(device), why)
    except MissingDependencyError as error:
        raise MissingDependencyError(
            f"the options strategy = {strategy!r} and device = {device!r} need a backend that is "
            f"not installed: {error.message}; or RESET sqlml_strategy, RESET sqlml_device, or the "
            "model's own OPTIONS"
        ) from None


@of_programs
def _weighed(program: Program, rows: int, batch: int, by_column: bool) -> tuple[Estimate, ...]:
    return estimates(program, current(), rows, batch, by_column)


@of_programs
def _runs(program: Program, way: Estimate) -> bool:
    """Whether a backend that is not sqlml's own runs all operators of the Program."""
    if way.seconds == float("inf"):
        return False
    lowered = program
    if BACKENDS[way.backend].level == "tensor":
        lowered = run(lower(program, way.strategy), passes=TENSOR_PASSES)
    return load(way.backend).supports(lowered) is None


def _cpu(device: str) -> str:
    return "cpu" if device == "auto" else device


def _strategy(program: Program, backend: str, asked: str) -> str:
    load(backend)  # it must be installed
    strategies = BACKENDS[backend].strategies
    if asked == "auto":
        return _by_depth(program, strategies)
    if asked not in strategies:
        raise ConfigError(
            f"backend {backend!r} has no strategy {asked!r}; strategies: {', '.join(strategies)}, "
            f"auto (backends: {', '.join(BACKENDS)})"
        )
    reason = _refusal(program, asked)
    if reason is not None:
        raise BackendError(reason)
    return asked


@of_programs
def _refusal(program: Program, strategy: str) -> str | None:
    return refusal(program, strategy)


def _by_depth(program: Program, strategies: tuple[str, ...]) -> str:
    """Hummingbird, section 5.1: GEMM for shallow trees, PTT up to depth 10, TT beyond."""
    ensembles = [Ensemble.of(n.attrs) for n in program.nodes if n.op == "tree_ensemble"]
    sets = any(e.has_categories for e in ensembles)
    if "gemm" not in strategies or (strategies[0] == "traverse" and not sets):
        return strategies[0]
    depth = max((e.depth for e in ensembles), default=0)
    return "gemm" if depth <= 3 else "ptt" if depth <= 10 else "tt"


# The number of rows in the choice of a way to run: whether it matters, and what ways take then.


FEW, MANY = 1, 1_000_000_000
"""Between these the choice is made."""


def depends_on_rows(program: Program, options: Mapping[str, Any]) -> bool:
    """Whether another way is best for few rows, or for very many, under the user's options.

    Times are nearly lines over the rows: what is best at both ends is so in between.
    """
    asked = tuple(str(options.get(name, "auto")).lower() for name in OPTIONS)
    return "auto" in asked and _depends(program, asked)


@of_programs
def _depends(program: Program, asked: tuple[str, ...]) -> bool:
    options = dict(zip(OPTIONS, asked, strict=True))
    made = [choose(program, options, rows) for rows in (ROWS, FEW, MANY)]
    return len({(c.backend, c.strategy, c.device) for c in made}) > 1


def for_rows(program: Program, choice: Choice, rows: int, by_column: bool) -> Choice:
    """A choice with its estimates for another number of rows, given by Arrow or `by_column`."""
    if not choice.estimates or choice.rows == rows:
        return choice
    weighed = estimates(program, current(), rows, by_column=by_column)
    new = {_way(e): e for e in weighed}

    def again(e: Estimate) -> Estimate:
        if e.backend == SQL:  # the engine takes as long for each row
            return replace(e, seconds=e.seconds * rows / choice.rows)
        return new.get(_way(e), e)

    first, *rest = map(again, choice.estimates)
    rest.sort(key=lambda e: e.start + e.seconds)
    return replace(choice, estimates=(first, *rest), rows=rows)


def _way(e: Estimate) -> tuple[str, str, str]:
    return e.backend, e.strategy, e.device
