"""`Checkpoint`: training that goes on after a kill, and makes the model that it would have made.

Of a search, the trials are saved that have ended (`tuning.py`).

With a checkpoint, rounds are made in segments, each from what the one before has saved. So one that
was killed, and begins anew with the last saved segment, does what an undisturbed one does, whatever
the library draws or rounds on the way. Segments grow with the rounds so far: what it costs to begin
them stays in proportion.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from sqlml.backends import own_files
from sqlml.child_process import Child, Ended, Failed
from sqlml.errors import ConfigError, SqlmlError
from sqlml.importers.lightgbm.document import read_text
from sqlml.importers.xgboost import document
from sqlml.importers.xgboost.document import read_document
from sqlml.importers.xgboost.forest import compact
from sqlml.training.options.request import Request
from sqlml.training.progress import Progress
from sqlml.training.storage.row_store import Blocks, Part, blocks_of

# `TrainingLog`: what happened in each round of training.


@dataclass(frozen=True, slots=True)
class Round:
    """One round of boosting, or one pass over the rows.

    loss, eval_loss: of the rows fitted to and those held out, in the library's own metric; None
    where the library tells none. seconds: since the round before, or None.
    """

    iteration: int
    loss: float | None
    eval_loss: float | None
    seconds: float | None


@dataclass(slots=True)
class TrainingLog:
    """The rounds so far, in order; `metric` is what the losses are, as the library calls it.

    progress: shows them.
    """

    progress: Progress = field(default_factory=Progress)
    metric: str = ""
    rounds: list[Round] = field(default_factory=list)
    _last: float = field(default_factory=time.perf_counter)

    def start(self, rounds: int | None) -> None:
        """The first round begins; there are so many at most, if that is known."""
        self.progress.begin("fitting", rounds, "round")
        self._last = time.perf_counter()

    def round(self, loss: float | None, eval_loss: float | None) -> None:
        """A round has ended."""
        now = time.perf_counter()
        self.rounds.append(Round(len(self.rounds) + 1, loss, eval_loss, now - self._last))
        self._last = now
        told = {"loss": loss, "eval_loss": eval_loss}
        self.progress.add(1, ", ".join(f"{k} {v:.4g}" for k, v in told.items() if v is not None))

    def restore(self, metric: str, losses: Iterable[tuple[float | None, float | None]]) -> None:
        """Rounds had ended in another process."""
        self.metric = metric
        for loss, eval_loss in losses:
            self.rounds.append(Round(len(self.rounds) + 1, loss, eval_loss, None))
        self.progress.add(len(self.rounds), "")
        self._last = time.perf_counter()

    def past(self, loss: float, eval_loss: float | None) -> None:
        """A round had ended before anybody could tell."""
        self.rounds.append(Round(len(self.rounds) + 1, loss, eval_loss, None))


LEAST = 10
"""Trees of a segment, at least; later ones have a quarter of the trees before."""

_HEAD = b"sqlml training 1\n"
_DIGEST = 32


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """What a segment has saved: losses of its rounds and those before, as `TrainingLog` has them,
    and what its library goes on from."""

    metric: str
    losses: tuple[tuple[float | None, float | None], ...]
    content: bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file in a folder of the user, for one training on one set of rows."""

    path: Path

    @classmethod
    def of(cls, folder: str, identity: str, parts: Iterable[Part | None]) -> Checkpoint:
        """The one in a folder.

        Args:
            identity: the statement and its options. parts: the rows; others make another file.

        Raises:
            ConfigError: others can write to the folder, or it cannot be made.
        """
        digest = sha256(identity.encode())
        for part in parts:
            for array in () if part is None else _arrays(part):
                digest.update(np.ascontiguousarray(array).data)
        _make_private(folder)
        return cls(Path(folder) / f"training-{digest.hexdigest()[:32]}.checkpoint")

    def load(self) -> Saved | None:
        """Return what was saved last; None if nothing was, it is damaged, or not the user's own."""
        try:
            content = own_files.read(self.path)
        except OSError:
            return None
        body, digest = content[:-_DIGEST], content[-_DIGEST:]
        if not body.startswith(_HEAD) or sha256(body).digest() != digest:
            return None
        head, _, rest = body.removeprefix(_HEAD).partition(b"\n")
        try:
            about = json.loads(head)
            losses = tuple((_loss(a), _loss(b)) for a, b in about["losses"])
            return Saved(str(about["metric"]), losses, rest)
        except (ValueError, TypeError, KeyError, RecursionError):
            return None

    def save(self, saved: Saved) -> None:
        """Replace what was saved, at once or not at all.

        Raises:
            ConfigError: the disk is full, or the folder not writable.
        """
        head = json.dumps({"metric": saved.metric, "losses": saved.losses}).encode()
        body = _HEAD + head + b"\n" + saved.content
        try:
            own_files.replace(self.path, body + sha256(body).digest())
        except OSError as error:
            raise ConfigError(
                f"option checkpoint: cannot write to {str(self.path.parent)!r}: {error}"
            ) from error

    def remove(self) -> None:
        """The training is done."""
        for left in self.path.parent.glob(f"{self.path.name}*"):  # a kill may leave half a file
            left.unlink(missing_ok=True)


def _make_private(folder: str) -> None:
    """Make a folder that nobody else can write to.

    Raises:
        ConfigError: it cannot be made, or others can write to it.
    """
    if not hasattr(os, "geteuid"):
        raise ConfigError(
            "option checkpoint: Windows does not tell who can write to a folder; leave it out"
        )
    try:
        own_files.make_private(Path(folder))
    except own_files.SharedFolderError as error:
        raise ConfigError(
            f"option checkpoint: others can write to the folder {error.filename!r}, or to one "
            "that it is in; name a folder that is yours alone, on a path that others cannot change"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"option checkpoint: the folder {folder!r} cannot be made: {error.strerror}; name "
            "another one"
        ) from error


Segment = Callable[[int, int, Any], Any]
"""Number of a segment, rounds to make, the model so far (None at first) -> the model with those
rounds, or with fewer if training has ended early."""


def in_segments(
    checkpoint: Checkpoint | None,
    log: TrainingLog,
    rounds: int,
    segment: Segment,
    dump: Callable[[Any], bytes],
    load: Callable[[bytes], Any],
    package: str = "",
    growth: float = 0.25,
    least: int = LEAST,
) -> Any:
    """Make all rounds of a model: in one go without a checkpoint, otherwise from the last segment.

    A checkpoint whose content is damaged is stepped over.

    Args:
        log: gets a round for each that is made, and those that had been. dump, load: a model as
            the checkpoint keeps it, and back. package: reads the content of a checkpoint.
            growth, least: how long segments are.
    """
    if checkpoint is None:
        return segment(0, rounds, None)
    model = None
    saved = checkpoint.load()
    if saved is not None and is_readable(package, saved.content):
        log.restore(saved.metric, saved.losses)
        model = load(saved.content)
    resumes = model is not None
    for number, start, end in segments(rounds, growth, least):
        if end <= len(log.rounds):
            continue
        if start != len(log.rounds):
            break  # it had ended early
        try:
            content = dump(segment(number, end - start, model))
        except Exception as error:
            if not resumes or isinstance(error, SqlmlError):
                raise
            # The library refuses to continue from this content, so training starts over.
            log.rounds.clear()
            checkpoint.remove()
            return in_segments(checkpoint, log, rounds, segment, dump, load, package, growth, least)
        resumes = False
        losses = tuple((r.loss, r.eval_loss) for r in log.rounds)
        checkpoint.save(Saved(log.metric, losses, content))
        model = load(content)
    return model


def is_readable(package: str, content: bytes) -> bool:
    """Return whether a library can read the content of a checkpoint.

    Damaged content can end the process that reads it, so that a process of its own tries first.
    """
    try:
        with Child(f"{__name__}:read_content", package.encode(), content):
            return True
    except (Ended, Failed):
        return False


def read_content(package: bytes, content: bytes) -> Generator[bytes, bytes, None]:
    """Read the content of a checkpoint: the child's part of `is_readable`.

    The importers check more than the libraries, which would read beyond a row's features.
    """
    if package == b"xgboost":
        import xgboost

        booster = xgboost.Booster(model_file=bytearray(content))
        read_document(document.loads(booster.save_raw("ubj"), compact))
    elif package == b"lightgbm":
        import lightgbm

        read_text(lightgbm.Booster(model_str=content.decode()).model_to_string())
    else:
        import torch

        torch.load(io.BytesIO(content), weights_only=True)
    yield b""


def segments(rounds: int, growth: float, least: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of the segments of so many rounds.

    >>> list(segments(25, 0.25, 10))
    [(0, 0, 10), (1, 10, 20), (2, 20, 25)]
    """
    start = number = 0
    while start < rounds:
        end = min(start + max(least, int(start * growth)), rounds)
        yield number, start, end
        start, number = end, number + 1


def _arrays(part: Part) -> Iterator[Any]:
    """Yield the numbers of a part, some at a time."""
    for block in part.X.blocks() if isinstance(part.X, Blocks) else (part.X,):
        if hasattr(block, "indptr"):  # sparse
            yield from (block.indptr, block.indices, block.data)
        elif hasattr(block, "columns"):  # a frame, with names of categories
            from pandas.util import hash_pandas_object

            yield hash_pandas_object(block, index=False).to_numpy()
        else:
            yield from blocks_of(block)
    yield from (values for values in (part.y, part.weight, part.group) if values is not None)


def _loss(value: Any) -> float | None:
    """Return a loss as it was saved.

    Raises:
        TypeError: it is none.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{value!r} is no loss")
    return value


# `Fitting`: what a library fits to what.


@dataclass(frozen=True, slots=True, eq=False)
class Fitting:
    """What is fitted to what.

    parameters: of the estimator. categories: places of the columns of X that are categories.
    held_out: None if no rows are. memory_limit: the engine's, in bytes. classes: how many the label
    has. checkpoint: where rounds are saved, or None.
    """

    request: Request
    parameters: dict[str, Any]
    categories: list[int]
    fitted: Part
    held_out: Part | None
    log: TrainingLog
    memory_limit: float
    classes: int = 0
    checkpoint: Checkpoint | None = None

    @property
    def patience(self) -> int | None:
        """The rounds without a gain after which training ends; None: all rounds are made."""
        return None if self.held_out is None else self.request.early_stopping_rounds
