"""Each field of a booster's file, changed: what sqlml takes, the library reads and answers alike.

`python -m tests.support.fields FORMAT` prints the changes that crash the library or change its
answers. It forks a process for each file, so that the library is imported once. Set
OMP_NUM_THREADS=1, because threads do not survive a fork.
"""

from __future__ import annotations

import copy
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import SqlmlError
from sqlml.importers.file_formats import read_artifact
from sqlml.importers.registry import Imported, import_model
from sqlml.planner.program.verification_rows import make_sample_frames
from sqlml.scorer.scorer import Scorer
from sqlml.verifying.ask_library import PredictionRequest, predict_with_library
from sqlml.verifying.compare import compare_outputs, get_tolerance
from sqlml.verifying.library_process import (
    LIBRARIES,
    _pack_predictions,
    _unpack_predictions,
    load_original,
)
from sqlml.verifying.source import score_frame
from tests.support import small_files

VALUES: tuple[Any, ...] = (
    -1, 2, 255, 2**31 - 1, 0.5, 1e30, float("nan"), "3", "-1", "x", None, True, [],
)  # fmt: skip
WORDS = ("-1", "0", "1", "2", "16", "0.5", "1e400", "1e-310", "nan", "inf", "99", "1_0", "+1", "x")
ROWS, SECONDS = 12, 20

Changed = Iterator[tuple[str, bytes]]
"""What was changed, and the file."""


def of_documents(files: tuple[bytes, ...]) -> Changed:
    """JSON: each entry, and the ends of each list."""
    for content in files:
        document = json.loads(content)
        for path in _places(document):
            for what, change in _changes(_at(document, path)):
                made = copy.deepcopy(document)
                change(_at(made, path[:-1]), path[-1])
                yield (
                    f"{'.'.join(map(str, path))}: {what}",
                    json.dumps(made, sort_keys=True).encode(),
                )


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            if path[-1:] != ("model_info",) or key == "class_params":
                yield from _places(value[key], (*path, key))
            else:  # texts about the training, and its parameters
                yield (*path, key)
    elif isinstance(value, list):
        for i in sorted({0, len(value) - 1} & set(range(len(value)))):
            yield from _places(value[i], (*path, i))


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def _changes(here: Any) -> Iterator[tuple[str, Callable[[Any, Any], None]]]:
    def put(value: Any) -> Callable[[Any, Any], None]:
        return lambda holder, key: holder.__setitem__(key, value)

    if not isinstance(here, dict):
        near = [here + 1, -here] if type(here) in (int, float) else []
        near += [str(int(here) + 1)] if isinstance(here, str) and here.isdecimal() else []
        for value in (*VALUES, *near):
            yield f"= {value!r}", put(value)
    if isinstance(here, list) and here:
        yield "shorter", put(here[:-1])
        yield "longer", put([*here, here[-1]])
        yield "turned round", put(here[::-1])
    yield "gone", lambda holder, key: holder.__delitem__(key)


def of_lines(files: tuple[bytes, ...]) -> Changed:
    """LightGBM's text: the header and the first tree, with sizes that fit what they became."""
    for content in files:
        lines = content.decode().split("\n")
        known = set()
        for at, line in enumerate(lines[: lines.index("end of trees")]):
            key, _, value = line.partition("=")
            if key in known:
                continue
            known.add(key)
            words = value.split(" ")
            made = [[], [line, line], [line, ""], [line, "x"], [line, "x=1"], [f"{key}="]]
            for word in WORDS:
                made += [[f"{key}={' '.join([word, *words[1:]])}"]]
                made += [[f"{key}={' '.join([*words[:-1], word])}"]]
            made += [[f"{key}={' '.join(w)}"] for w in (words[:-1], words[::-1], words * 2)]
            for new in made:
                text = "\n".join([*lines[:at], *new, *lines[at + 1 :]])
                yield (
                    f"{line[:30]} -> {new}",
                    (text if key == "tree_sizes" else _sized(text)).encode(),
                )


def _sized(text: str) -> str:
    blocks = re.findall(r"(?ms)^Tree=.*?(?=^Tree=|^end of trees)", text)
    sizes = " ".join(str(len(block)) for block in blocks)
    return re.sub(r"(?m)^tree_sizes=.*$", f"tree_sizes={sizes}", text)


FORMATS: Mapping[str, tuple[Callable[[], tuple[bytes, ...]], Callable[..., Changed]]] = (
    MappingProxyType(
        {
            "CATBOOST": (small_files.catboost_files, of_documents),
            "LIGHTGBM": (small_files.lightgbm_files, of_lines),
            "XGBOOST": (
                lambda: (small_files.xgboost_sets(), *small_files.xgboost_files()[1:]),
                of_documents,
            ),
        }
    )
)


def finding(kind: str, content: bytes) -> str | None:
    """What the library does of a file that sqlml takes, and should not."""
    try:
        with np.errstate(all="ignore"):
            model = read_artifact(content, format=kind, path="file", allow_pickle=False)
            imported = import_model(model)
    except SqlmlError:
        return None
    program = imported.program
    frames = [frame.head(ROWS) for frame in make_sample_frames(program, imported.features)]
    told, status = _in_fork(kind, content, imported, frames)
    if status:
        return f"dies of {signal.Signals(status).name}"
    scorer = Scorer(program, imported.features, {"backend": "reference"})
    for frame, answer in zip(frames, told, strict=False):
        try:
            theirs = _unpack_predictions(answer)
            ours = score_frame(scorer, frame, theirs)
        except SqlmlError:
            continue  # one of the two refuses these rows
        for found in compare_outputs(program, ours, theirs, get_tolerance(LIBRARIES[kind])):
            if not found.agrees:
                return (
                    f"{found.output} differs by {found.relative:.1e}, {found.certain_flips} labels"
                )
    return None


def _in_fork(
    kind: str, content: bytes, imported: Imported, frames: list[Any]
) -> tuple[list[bytes], int]:
    """The answers about each frame, none where the library refuses the file; and the signal."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(SECONDS)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            asked = PredictionRequest.for_program(imported.program)
            model = load_original(kind, "file", content, is_classifier=asked.has_classes)
            with os.fdopen(write, "wb") as out:
                for frame in frames:
                    try:
                        answer = _pack_predictions(predict_with_library(model, frame, asked))
                    except SqlmlError as error:
                        answer = json.dumps({"refused": error.message}).encode()
                    out.write(len(answer).to_bytes(8, "little") + answer)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as told:
        rest = told.read()
    status = os.waitpid(child, 0)[1]
    made = []
    while rest:
        size = int.from_bytes(rest[:8], "little")
        made.append(rest[8 : 8 + size])
        rest = rest[8 + size :]
    return made, status & 127


def main() -> None:
    """Findings to the standard output, and behind them how many files there were."""
    kind = sys.argv[1]
    files, changed = FORMATS[kind]
    count = 0
    for what, content in changed(files()):
        count += 1
        found = finding(kind, content)
        if found is not None:
            print(f"{what}: {found}", flush=True)
    print(count)


if __name__ == "__main__":
    main()
