"""Train a model for each partition of the rows of a query, as PARTITION BY requests.

::

    query -> columns -> rows, read once -> partitions -> a fitted model of each -> one Program

The rows of a partition are split, checked and fitted as if the query had returned only them, except
that the split "auto" is the same for all partitions. Once the first partitions have taken a while,
the others are trained in several processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ConfigError, SqlmlError
from sqlml.host import RowHost
from sqlml.importers.registry import import_model
from sqlml.ir.program import Program
from sqlml.long_work import show_stage
from sqlml.scorer.evaluate import Metrics
from sqlml.training.model_types import SUPERVISED, MeasuredRows, compute_measured_metrics
from sqlml.training.options.request import Request
from sqlml.training.partitioned_program import Key, PartitionColumn, combine_programs
from sqlml.training.progress import Progress, TrainingLog
from sqlml.training.row_store import EstimatorRows
from sqlml.training.rows.estimator_input import build_frame
from sqlml.training.rows.partitioned_rows import PartitionedRows, read_partitions
from sqlml.training.rows.read_rows import TrainingRows
from sqlml.training.rows.training_columns import TrainingColumn, TrainingColumns, read_columns
from sqlml.training.train_model_type import TrainedModel, train_on_rows
from sqlml.types import Labels

SERIAL_SECONDS = 2.0
"""Seconds of training after which other processes train the remaining partitions."""

MAX_VERIFIED = 8
"""The number of partitions whose models are compared with their source library."""

MAX_REPORTED = 3
"""The number of partitions that a message names."""


@dataclass(frozen=True, slots=True, eq=False)
class TrainedPartition:
    """The model of a partition, without the fitted object.

    The fields are those of `TrainedModel`; `program` is the imported model.
    """

    program: Program
    labels: Labels | None
    rows: int
    held_out: int
    metrics: Metrics
    measured: MeasuredRows | None
    notices: tuple[str, ...]
    columns: TrainingColumns
    versions: Mapping[str, str]
    seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class _Trainer:
    """Trains the model of a partition, here or in another process."""

    columns: TrainingColumns
    request: Request
    inlines: bool

    def train(self, rows: TrainingRows) -> tuple[TrainedPartition, Any] | SqlmlError:
        """Return the trained partition and the fitted object, or the error of the training."""
        start = time.perf_counter()
        try:
            trained = train_on_rows(
                rows, self.columns, self.request, TrainingLog(), self.inlines, ""
            )
            program = import_model(trained.model).program
        except SqlmlError as error:
            return error
        if trained.labels is not None and len(program.labels) == 1:
            program = replace(program, labels=(trained.labels,))
        partition = TrainedPartition(
            program=program,
            labels=trained.labels,
            rows=trained.rows,
            held_out=trained.held_out,
            metrics=trained.metrics,
            measured=trained.measured,
            notices=trained.notices,
            columns=trained.columns,
            versions=trained.versions,
            seconds=time.perf_counter() - start,
        )
        return partition, trained.model

    def train_model(self, rows: TrainingRows) -> TrainedPartition | SqlmlError:
        """Return the trained partition without the fitted object, or the error of the training."""
        result = self.train(rows)
        return result if isinstance(result, SqlmlError) else result[0]


def train_partitions(
    host: RowHost,
    query: str,
    request: Request,
    transform: Sequence[str] | None = None,
    *,
    inlines: bool = True,
) -> TrainedModel:
    """Train the requested model on each partition of the rows of a query.

    The arguments are those of `train`. The trained model is a Program. Raise ConfigError with the
    values of the partition if one of them cannot be trained, unless a fallback scores its rows.
    """
    start = time.perf_counter()
    _check_request(request)
    request = replace(request, out_of_core=False)
    columns, request = read_columns(host, query, request, transform)
    if not inlines:
        columns = columns.drop_expressions()
    if not columns.features:
        raise ConfigError(
            "the query has no column that a model can learn from besides the partition columns: "
            "add one"
        )
    progress = Progress()
    try:
        partitions = read_partitions(host, query, columns, request, progress)
        trainer = _Trainer(columns, partitions.request, inlines)
        trained = _train_all(partitions, trainer, progress)
    finally:
        progress.close()
    return replace(trained, seconds=time.perf_counter() - start)


def _check_request(request: Request) -> None:
    if request.split.method == "seq" and request.options.keys() & {"calibration"}:
        raise ConfigError(
            "option calibration is not available with PARTITION BY and split = 'seq': calibrate "
            "the model afterwards with ALTER MODEL ... CALIBRATE USING (query)"
        )
    if request.checkpoint is not None:
        raise ConfigError("a model with PARTITION BY has no checkpoint; leave out the option")
    if request.task not in SUPERVISED and request.task != "isolate":
        raise ConfigError(
            f"{request.model_type} models number their results in each partition anew, so they "
            "take no PARTITION BY; train one model for each partition"
        )


def _train_all(partitions: PartitionedRows, trainer: _Trainer, progress: Progress) -> TrainedModel:
    request, keys = trainer.request, partitions.keys
    enough = [k for k, n in enumerate(partitions.counts) if n >= request.min_partition_rows]
    if not keys:
        raise ConfigError("the query returns no rows with a label: there is nothing to train on")
    if not enough:
        raise ConfigError(
            f"no partition has {request.min_partition_rows} rows to train on: lower "
            "min_partition_rows, or check the query"
        )
    progress.begin("training", len(enough), "partition")
    trained: dict[Key, TrainedPartition] = {}
    samples: list[tuple[Any, Program]] = []
    failures: dict[Key, SqlmlError] = {}
    results = zip(enough, _train_positions(partitions, enough, trainer, samples), strict=True)
    for position, result in results:
        key = keys[position]
        if isinstance(result, TrainedPartition):
            trained[key] = result
        elif request.unseen_partition == "fallback":
            failures[key] = result
        else:
            raise _make_partition_error(partitions.columns, key, result)
        progress.add(1)
    all_rows = partitions.take_all()
    default = None
    if request.unseen_partition == "fallback":
        show_stage("training the fallback")
        fallback = trainer.train_model(all_rows)
        if isinstance(fallback, SqlmlError):
            raise ConfigError(f"the fallback model of all rows: {fallback}")
        default = fallback
    if not trained:
        key, error = next(iter(failures.items()))
        raise _make_partition_error(partitions.columns, key, error)
    show_stage("combining the partitions")
    counts = zip(keys, partitions.counts, strict=True)
    small = [key for key, count in counts if count < request.min_partition_rows]
    notices = _report_partitions(partitions.columns, small, failures, request)
    return _combine(trained, default, all_rows, partitions, trainer, samples, notices, enough)


def _train_positions(
    partitions: PartitionedRows,
    positions: Sequence[int],
    trainer: _Trainer,
    samples: list[tuple[Any, Program]],
) -> Iterator[TrainedPartition | SqlmlError]:
    """Train the partitions at `positions` in order, and yield the result of each.

    The first fitted objects and their Programs are added to `samples`.
    """
    start = time.perf_counter()
    rows = partitions.iterate(positions)
    count = 0
    for partition_rows in rows:
        result = trainer.train(partition_rows)
        count += 1
        if isinstance(result, SqlmlError):
            yield result
        else:
            trained, model = result
            if len(samples) < MAX_VERIFIED:
                samples.append((model, trained.program))
            yield trained
        is_slow = time.perf_counter() - start > SERIAL_SECONDS
        if is_slow and len(positions) - count > 1 and len(samples) >= MAX_VERIFIED:
            break
    yield from _train_in_processes(rows, trainer)


def _train_in_processes(
    rows: Iterator[TrainingRows], trainer: _Trainer
) -> Iterator[TrainedPartition | SqlmlError]:
    first = next(rows, None)
    if first is None:
        return
    remaining = chain((first,), rows)
    num_processes = _count_processors()
    if num_processes < 2:
        yield from map(trainer.train_model, remaining)
        return
    from joblib import Parallel, delayed, parallel_config

    with parallel_config(backend="loky", inner_max_num_threads=1):
        train = delayed(trainer.train_model)
        yield from Parallel(n_jobs=num_processes, return_as="generator", batch_size="auto")(
            train(partition_rows) for partition_rows in remaining
        )


def _count_processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _combine(
    trained: Mapping[Key, TrainedPartition],
    default: TrainedPartition | None,
    all_rows: TrainingRows,
    partitions: PartitionedRows,
    trainer: _Trainer,
    samples: Sequence[tuple[Any, Program]],
    notices: Sequence[str],
    enough: Sequence[int],
) -> TrainedModel:
    request = trainer.request
    members = [*trained.values(), *([] if default is None else [default])]
    # A text that any of the models fills is filled for all of them.
    columns = trainer.columns
    filled = {c for member in members for c in member.columns.features} - {*columns.features}
    columns = columns.fill_texts([column.name for column in filled])
    keys = (TrainingColumn(n, columns.raw[n], None) for n in request.partition_by)
    columns = replace(columns, features=(*keys, *columns.features))
    program = combine_programs(
        partitions.columns,
        {key: partition.program for key, partition in trained.items()},
        None if default is None else default.program,
        request.unseen_partition == "null",
        [column.name for column in columns.features],
    )
    counted_notices = _count_notices([partition.notices for partition in trained.values()])
    return TrainedModel(
        model=program,
        labels=program.labels[0] if program.labels else None,
        request=request,
        split=request.split,
        rows=sum(partition.rows for partition in trained.values()),
        held_out=sum(partition.held_out for partition in trained.values()),
        metrics=_compute_metrics(list(trained.values()), program),
        log=TrainingLog(),
        statistics=tuple(
            statistics for name, statistics in all_rows.statistics.items() if name in program.inputs
        ),
        notices=(*notices, *counted_notices),
        versions=members[0].versions,
        seconds=0.0,  # `train_partitions` sets the seconds.
        held_out_rows=partial(_read_held_out, partitions, enough, trainer, program),
        columns=columns,
        partitions=tuple(
            (key, p.rows, p.held_out, dict(p.metrics), round(p.seconds, 4))
            for key, p in trained.items()
        ),
        samples=tuple(samples),
    )


def _read_held_out(
    partitions: PartitionedRows, positions: Sequence[int], trainer: _Trainer, program: Program
) -> EstimatorRows:
    """Return the held-out rows of the partitions at `positions`, with the partition columns."""
    import pandas as pd

    frames, labels, weights = [], list[Any](), list[Any]()
    for position, rows in zip(positions, partitions.iterate(positions), strict=True):
        if rows.held_out is None:
            continue
        frame = build_frame(rows, rows.held_out, rows.order)
        for column, value in zip(partitions.columns, partitions.keys[position], strict=True):
            frame[column.name] = value
        codes = rows.held_out.label
        if rows.classes is not None and codes is not None:
            classes = program.labels[0].values
            codes = np.array([classes.index(value) for value in rows.classes.values()])[codes]
        frames.append(frame)
        labels.append(codes)
        weights.append(rows.held_out.weight)
    if not frames:
        raise ConfigError("no partition holds out rows")
    weight = None if weights[0] is None else np.concatenate(weights)
    return EstimatorRows(pd.concat(frames), np.concatenate(labels), weight, None)


def _compute_metrics(partitions: Sequence[TrainedPartition], program: Program) -> Metrics:
    """Return the metrics on the measured rows of all partitions together.

    If any partition holds out rows, only held-out rows count.
    """
    has_held_out = any(partition.held_out for partition in partitions)
    counted = [p for p in partitions if p.held_out or not has_held_out]
    measured = [_align_measured(p.measured, p.labels, program) for p in counted if p.measured]
    if len(measured) < len(counted):
        return _average_metrics(partitions, has_held_out)
    weights = [rows.weight for rows in measured]
    pooled = MeasuredRows(
        np.concatenate([rows.labels for rows in measured]),
        np.concatenate([rows.predictions for rows in measured]),
        None if any(weight is None for weight in weights) else np.concatenate(weights),
    )
    return compute_measured_metrics(pooled, len(program.labels[0]) if program.labels else 0)


def _align_measured(rows: MeasuredRows, labels: Labels | None, program: Program) -> MeasuredRows:
    """Return the rows with the class numbers of `program`, which has the classes of all models."""
    if labels is None or labels.values == program.labels[0].values:
        return rows
    all_classes = program.labels[0].values
    positions = np.array([all_classes.index(value) for value in labels.values], np.int64)
    predictions = np.zeros((len(rows.predictions), len(all_classes)))
    predictions[:, positions] = rows.predictions
    return MeasuredRows(positions[rows.labels], predictions, rows.weight)


def _average_metrics(partitions: Sequence[TrainedPartition], has_held_out: bool) -> Metrics:
    """Return the mean of each metric, weighted by the rows on which it was measured.

    Partitions in which a metric is not defined are left out of its mean.
    """
    means: dict[str, float | None] = {}
    for name in dict.fromkeys(name for p in partitions for name in p.metrics):
        pairs = [
            (value, p.held_out if has_held_out else p.rows)
            for p in partitions
            if (value := p.metrics.get(name)) is not None and (p.held_out or not has_held_out)
        ]
        weights = [weight for _, weight in pairs]
        means[name] = float(np.average([v for v, _ in pairs], weights=weights)) if pairs else None
    return MappingProxyType(means)


def format_key(columns: Sequence[PartitionColumn], key: Key) -> str:
    """Format the values of a partition for a message.

    >>> format_key([PartitionColumn("shop", True), PartitionColumn("year", False)], ("a", 2026))
    "shop = 'a', year = 2026"
    """
    return ", ".join(f"{c.name} = {value!r:.60}" for c, value in zip(columns, key, strict=True))


def _make_partition_error(
    columns: Sequence[PartitionColumn], key: Key, error: SqlmlError
) -> ConfigError:
    advice = (
        "leave this partition out of the query, set min_partition_rows, or set unseen_partition = "
        "'fallback', so that a model of all rows scores it"
    )
    return ConfigError(f"partition {format_key(columns, key)}: {error}; or {advice}")


def _report_partitions(
    columns: Sequence[PartitionColumn],
    small: Sequence[Key],
    failures: Mapping[Key, SqlmlError],
    request: Request,
) -> list[str]:
    notices = []
    if small:
        reason = f"fewer than {request.min_partition_rows} rows, so no model"
        notices.append(f"{_list_keys(columns, small)} {reason}")
    if failures:
        own_model, rows = ("model of its own", "it") if len(failures) == 1 else ("models", "them")
        reason = f"no {own_model} ({next(iter(failures.values()))}): the fallback scores {rows}"
        notices.append(f"{_list_keys(columns, list(failures))} {reason}")
    return notices


def _list_keys(columns: Sequence[PartitionColumn], keys: Sequence[Key]) -> str:
    """Return the subject of a sentence about partitions, with the verb "has" or "have"."""
    listed = "; ".join(format_key(columns, key) for key in keys[:MAX_REPORTED])
    if len(keys) == 1:
        return f"partition {listed} has"
    more = "; ..." if len(keys) > MAX_REPORTED else ""
    return f"{len(keys):,} partitions ({listed}{more}) have"


def _count_notices(notices_of_partitions: Sequence[Sequence[str]]) -> list[str]:
    """Return each distinct notice with the number of partitions that it is about."""
    counts: dict[str, int] = {}
    for notices in notices_of_partitions:
        for notice in notices:
            counts[notice] = counts.get(notice, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])[:MAX_REPORTED]
    return [f"{notice} (in {count:,} partitions)" for notice, count in ordered]
