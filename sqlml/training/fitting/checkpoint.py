"""Checkpoints: a training that resumes after a kill yields the same model as without the kill.

Rounds are fitted in segments. Each segment starts from the saved content of the previous segment. A
resumed training therefore repeats exactly what an uninterrupted training does, including random
draws and rounding. A search saves its finished trials (`tuning.py`).
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from sqlml.backends import own_files
from sqlml.child_process import Child, ChildEnded, ChildFailed
from sqlml.errors import ConfigError, SqlmlError
from sqlml.importers.lightgbm.document import read_text
from sqlml.importers.untrusted_documents import read_ubjson
from sqlml.importers.xgboost.document import read_document
from sqlml.importers.xgboost.forest import compact
from sqlml.training.options.request import Request
from sqlml.training.progress import TrainingLog
from sqlml.training.row_store import BlockMatrix, EstimatorRows, read_blocks

_HEADER = b"sqlml training 1\n"
_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class SavedProgress:
    """The content of a checkpoint.

    metric, losses: the metric and losses of all rounds so far, as in `TrainingLog`. content: the
    state from which the library resumes.
    """

    metric: str
    losses: tuple[tuple[float | None, float | None], ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file in the user's folder with the progress of one training on one set of rows."""

    path: Path

    @classmethod
    def of(
        cls, folder: str, identity: str, data_parts: Iterable[EstimatorRows | None]
    ) -> Checkpoint:
        """Return the checkpoint in `folder` whose file name is a hash of `identity` and rows."""
        digest = sha256(identity.encode())
        for part in data_parts:
            for array in () if part is None else _read_arrays(part):
                digest.update(np.ascontiguousarray(array).data)
        _make_private_folder(folder)
        return cls(Path(folder) / f"training-{digest.hexdigest()[:32]}.checkpoint")

    def load(self) -> SavedProgress | None:
        """Load the saved progress, or return None if the file is missing, damaged or not ours."""
        try:
            content = own_files.read(self.path)
        except OSError:
            return None
        body, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
        if not body.startswith(_HEADER) or sha256(body).digest() != digest:
            return None
        header_line, _, saved_content = body.removeprefix(_HEADER).partition(b"\n")
        try:
            header = json.loads(header_line)
            losses = tuple((_parse_loss(x), _parse_loss(y)) for x, y in header["losses"])
            return SavedProgress(str(header["metric"]), losses, saved_content)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    def save(self, saved: SavedProgress) -> None:
        """Replace the saved content atomically."""
        header_line = json.dumps({"metric": saved.metric, "losses": saved.losses}).encode()
        body = _HEADER + header_line + b"\n" + saved.content
        try:
            own_files.replace(self.path, body + sha256(body).digest())
        except OSError as error:
            folder = str(self.path.parent)
            raise ConfigError(f"option checkpoint: cannot write to {folder!r}: {error}") from error

    def remove(self) -> None:
        # A killed process may also leave an incomplete file with a longer name.
        for path in self.path.parent.glob(f"{self.path.name}*"):
            path.unlink(missing_ok=True)


def _make_private_folder(folder: str) -> None:
    if not hasattr(os, "geteuid"):
        raise ConfigError("leave out checkpoint: Windows does not tell who can write to a folder")
    try:
        own_files.make_private(Path(folder))
    except own_files.SharedFolderError as error:
        raise ConfigError(
            f"option checkpoint: others can write to the folder {error.filename!r}, or to one "
            "of its parents; name a folder that only you can write to, and no one else can replace"
        ) from error
    except OSError as error:
        fault = f"the folder {folder!r} cannot be made: {error.strerror}"
        raise ConfigError(f"option checkpoint: {fault}; name another one") from error


@dataclass(frozen=True, slots=True)
class ModelFormat:
    """The functions that save a library's models in a checkpoint and load them again.

    package: the package that reads the content of a checkpoint. dump, load: convert a model to this
    content, and back. growth, min_rounds: the lengths of segments; see `split_rounds`.
    """

    package: str
    dump: Callable[[Any], bytes]
    load: Callable[[bytes], Any]
    growth: float = 0.25
    min_rounds: int = 10


FitSegment = Callable[[int, int, Any], Any]
"""A function from the index of a segment, its number of rounds, and the model so far (None at
first) to the model with these rounds, or with fewer rounds if training stopped early."""


def fit_in_segments(
    checkpoint: Checkpoint | None,
    log: TrainingLog,
    rounds: int,
    fit_segment: FitSegment,
    model_format: ModelFormat,
) -> Any:
    """Fit `rounds` rounds of a model, in segments if `checkpoint` is set, otherwise all at once.

    Each segment is saved, and training resumes after the last saved segment.
    """
    if checkpoint is None:
        return fit_segment(0, rounds, None)
    model = None
    saved = checkpoint.load()
    if saved is not None and is_readable(model_format.package, saved.content):
        log.restore(saved.metric, saved.losses)
        model = model_format.load(saved.content)
    is_resuming = model is not None
    segments = split_rounds(rounds, model_format.growth, model_format.min_rounds)
    for segment_index, start, end in segments:
        if end <= len(log.rounds):
            continue
        if start != len(log.rounds):
            break  # Training stopped early.
        try:
            model_bytes = model_format.dump(fit_segment(segment_index, end - start, model))
        except Exception as error:
            if not is_resuming or isinstance(error, SqlmlError):
                raise
            # The library cannot continue from this saved model, so training starts over.
            log.rounds.clear()
            checkpoint.remove()
            return fit_in_segments(checkpoint, log, rounds, fit_segment, model_format)
        is_resuming = False
        losses = tuple((past_round.loss, past_round.eval_loss) for past_round in log.rounds)
        checkpoint.save(SavedProgress(log.metric, losses, model_bytes))
        model = model_format.load(model_bytes)
    return model


def is_readable(package: str, content: bytes) -> bool:
    """Return whether a library can read the content of a checkpoint.

    Damaged content can crash the process that reads it, so a child process tries first.
    """
    try:
        with Child(f"{__name__}:read_content", package.encode(), content):
            return True
    except (ChildEnded, ChildFailed):
        return False


def read_content(package: bytes, content: bytes) -> Generator[bytes, bytes, None]:
    """Read the content of a checkpoint with its library, and with sqlml's stricter importer."""
    if package == b"xgboost":
        import xgboost

        booster = xgboost.Booster(model_file=bytearray(content))
        read_document(read_ubjson(booster.save_raw("ubj"), compact))
    elif package == b"lightgbm":
        import lightgbm

        read_text(lightgbm.Booster(model_str=content.decode()).model_to_string())
    else:
        import torch

        torch.load(io.BytesIO(content), weights_only=True)
    yield b""


def split_rounds(rounds: int, growth: float, min_rounds: int) -> Iterator[tuple[int, int, int]]:
    """Yield the index, first round and end of each segment of a training.

    A segment has `growth` times as many rounds as all earlier segments, but at least `min_rounds`.

    >>> list(split_rounds(25, 0.25, 10))
    [(0, 0, 10), (1, 10, 20), (2, 20, 25)]
    """
    start = segment_index = 0
    while start < rounds:
        end = min(start + max(min_rounds, int(start * growth)), rounds)
        yield segment_index, start, end
        start, segment_index = end, segment_index + 1


def _read_arrays(part: EstimatorRows) -> Iterator[Any]:
    for block in part.X.blocks() if isinstance(part.X, BlockMatrix) else (part.X,):
        if hasattr(block, "indptr"):
            yield from (block.indptr, block.indices, block.data)
        elif hasattr(block, "columns"):
            from pandas.util import hash_pandas_object

            yield hash_pandas_object(block, index=False).to_numpy()
        else:
            yield from read_blocks(block)
    yield from (values for values in (part.y, part.weight, part.group) if values is not None)


def _parse_loss(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{value!r} is not a loss")
    return value


@dataclass(frozen=True, slots=True, eq=False)
class FitArguments:
    """The arguments of a fit.

    parameters: the parameters of the estimator. categories: the indices of categorical columns in
    X. held_out: None if no rows are held out. memory_limit: the memory limit of the engine, in
    bytes. n_classes: the number of classes of the label. checkpoint: None if rounds are not saved.
    """

    request: Request
    parameters: dict[str, Any]
    categories: list[int]
    fitted: EstimatorRows
    held_out: EstimatorRows | None
    log: TrainingLog
    memory_limit: float
    n_classes: int = 0
    checkpoint: Checkpoint | None = None

    @property
    def patience(self) -> int | None:
        """The number of rounds without improvement after which to stop, or None to never stop."""
        return None if self.held_out is None else self.request.early_stopping_rounds
