"""The contenders: how each makes a function that scores rows, of a fitted model.

Every contender gets the same float32 matrix in C order and gives back an array; what it has to
make of the matrix first is part of its time. All get the same number of threads. A contender that
is not installed, or does not take the model, raises; `contest` reports the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sqlml
from benchmarks.compiled import compiled
from benchmarks.lleaves_library import load_lleaves
from benchmarks.models import CACHE, Subject, kept
from benchmarks.tables import Matrix

Score = Callable[[Matrix], Any]


class Unsuited(Exception):
    """What a contender does not do, in a few words."""


@dataclass(frozen=True, slots=True)
class Setting:
    """threads: of every contender. compile_limit: seconds that a C compiler may take. cache: the
    folder of what takes long to make."""

    threads: int
    compile_limit: float = 300.0
    cache: Path = CACHE


Make = Callable[[Subject, Setting], Score]


def _library(subject: Subject, setting: Setting) -> Score:
    return LIBRARY[subject.library](subject, setting)


def _sklearn(subject: Subject, setting: Setting) -> Score:
    model = subject.model
    if "n_jobs" in model.get_params():
        model = model.set_params(n_jobs=setting.threads)
    score: Score = getattr(model, subject.method)
    return score


def _xgboost(subject: Subject, setting: Setting) -> Score:
    booster = subject.model.get_booster()
    booster.set_param({"nthread": setting.threads})
    score: Score = booster.inplace_predict
    return score


def _lightgbm(subject: Subject, setting: Setting) -> Score:
    return partial(subject.model.booster_.predict, num_threads=setting.threads)


def _catboost(subject: Subject, setting: Setting) -> Score:
    return partial(getattr(subject.model, subject.method), thread_count=setting.threads)


LIBRARY: Mapping[str, Make] = {
    "scikit-learn": _sklearn,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
}
"""The source libraries' own fastest way to score a numpy array."""


def _sqlml(subject: Subject, setting: Setting, **options: Any) -> Score:
    scorer = sqlml.compile(subject.model, threads=setting.threads, **options)
    score: Score = getattr(scorer, subject.method)
    return score


def _onnxruntime(subject: Subject, setting: Setting) -> Score:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setting.threads
    options.log_severity_level = 4
    # its threads may spin while it runs, and not while another contender does
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(
        convert_to_onnx(subject), options, providers=["CPUExecutionProvider"]
    )
    name = session.get_inputs()[0].name
    outputs = session.get_outputs()
    wanted = [outputs[1 if subject.method == "predict_proba" else 0].name]
    return lambda x: session.run(wanted, {name: x})[0]


def convert_to_onnx(subject: Subject) -> bytes:
    """Return the ONNX file that the usual converter writes for a model of a matrix.

    Raises:
        Unsuited: no converter writes a file that is of use.
    """
    features = subject.train[0].shape[1]
    if subject.library == "catboost":
        raise Unsuited("CatBoost's own ONNX file gives a list of Python dicts")
    if subject.library == "scikit-learn":
        from skl2onnx import to_onnx

        sample = subject.train[0][:1]
        options = {"zipmap": False} if subject.labels else None
        try:
            file = to_onnx(subject.model, sample, options=options)
        except NameError:  # a classifier whose converter does not know the option
            file = to_onnx(subject.model, sample)
        return bytes(file.SerializeToString())
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    types = [("x", FloatTensorType([None, features]))]
    if subject.library == "xgboost":
        proto = onnxmltools.convert_xgboost(subject.model, initial_types=types)
    else:
        proto = onnxmltools.convert_lightgbm(subject.model, initial_types=types, zipmap=False)
    return bytes(proto.SerializeToString())


CHUNK = 10_000
"""Rows that Hummingbird gets at a time: its tensors are as long as rows times trees."""


def _hummingbird(subject: Subject, setting: Setting) -> Score:
    import hummingbird.ml

    model = hummingbird.ml.convert(
        subject.model, "torch", subject.train[0][:10], extra_config={"n_threads": setting.threads}
    )
    score: Score = getattr(model, subject.method)

    def chunked(x: Matrix) -> Any:
        if len(x) <= CHUNK:
            return score(x)
        return np.concatenate([score(x[i : i + CHUNK]) for i in range(0, len(x), CHUNK)])

    return chunked


def _onedal(subject: Subject, setting: Setting) -> Score:
    """`daal4py.mb` for boosters; a forest goes through Treelite, as oneDAL's documentation says."""
    import daal4py
    import daal4py.mb

    if subject.library == "scikit-learn":
        source = _treelite_model(subject)
    elif subject.library == "xgboost":
        source = subject.model.get_booster()
    else:
        source = getattr(subject.model, "booster_", subject.model)
    daal4py.daalinit(setting.threads)
    model = daal4py.mb.convert_model(source)
    # of a forest of two classes oneDAL makes a regression, whose value is the probability
    method = "predict" if subject.library == "scikit-learn" else subject.method
    score: Score = getattr(model, method)
    return score


def _sklearnex(subject: Subject, setting: Setting) -> Score:
    """scikit-learn-intelex has no way to take a fitted model: it fits its own, on the same rows."""
    import importlib

    cls = type(subject.model)
    package = ".".join(cls.__module__.split(".")[1:2])
    try:
        patched = getattr(importlib.import_module(f"sklearnex.{package}"), cls.__name__, None)
    except ModuleNotFoundError as error:
        if error.name == f"sklearnex.{package}":
            patched = None
        else:
            raise
    if subject.library != "scikit-learn" or patched is None:
        raise Unsuited("does not patch this estimator")
    parameters = {**subject.model.get_params(), "n_jobs": setting.threads}
    known = {k: v for k, v in parameters.items() if k in patched().get_params()}
    path = setting.cache / f"{subject.key}-sklearnex.pickle"
    model = kept(path, lambda: patched(**known).fit(*subject.train))
    if "n_jobs" in known:
        model.set_params(n_jobs=setting.threads)
    score: Score = getattr(model, subject.method)
    return score


def _treelite_model(subject: Subject) -> Any:
    if subject.library == "catboost":
        raise Unsuited("does not import CatBoost")
    import treelite.frontend
    import treelite.sklearn

    if subject.library == "xgboost":
        return treelite.frontend.from_xgboost(subject.model.get_booster())
    if subject.library == "lightgbm":
        return treelite.frontend.from_lightgbm(subject.model.booster_)
    return treelite.sklearn.import_model(subject.model)


def _treelite(subject: Subject, setting: Setting) -> Score:
    import treelite.gtil

    return partial(treelite.gtil.predict, _treelite_model(subject), nthread=setting.threads)


def _tl2cgen(subject: Subject, setting: Setting) -> Score:
    import tl2cgen

    library = compiled(_treelite_model(subject), subject.key, setting.compile_limit, setting.cache)
    predictor = tl2cgen.Predictor(str(library), nthread=setting.threads)
    return lambda x: predictor.predict(tl2cgen.DMatrix(x))


def _lleaves(subject: Subject, setting: Setting) -> Score:
    if subject.library != "lightgbm":
        raise Unsuited("compiles LightGBM's models only")
    classes = subject.model.booster_.num_model_per_iteration()
    source = _write_model(subject, setting)
    return load_lleaves(source, classes, setting.threads, setting.compile_limit)


def _timber(subject: Subject, setting: Setting) -> Score:
    """Timber makes C code, which it compiles; its function has one thread."""
    from timber.runtime.predictor import TimberPredictor

    if subject.library not in ("lightgbm", "xgboost"):
        raise Unsuited("reads the files of XGBoost and LightGBM")
    score: Score = TimberPredictor.from_model(_write_model(subject, setting)).predict
    return score


def _quickgrove(subject: Subject, setting: Setting) -> Score:
    """quickgrove reads batches of Arrow; its function has one thread."""
    import pyarrow as pa
    import quickgrove

    if subject.library != "xgboost":
        raise Unsuited("reads XGBoost's models only")
    names = [f"f{i}" for i in range(subject.train[0].shape[1])]
    booster = subject.model.get_booster().copy()
    booster.feature_names, booster.feature_types = names, ["float"] * len(names)
    path = setting.cache / f"{subject.key}-named.json"
    booster.save_model(path)
    content = json.loads(path.read_text())
    parameters = content["learner"]["learner_model_param"]
    parameters["base_score"] = parameters["base_score"].strip("[]")  # quickgrove reads a number.
    path.write_text(json.dumps(content))
    model = quickgrove.json_load(str(path))

    def score(x: Matrix) -> Any:
        columns = [pa.array(np.ascontiguousarray(column)) for column in x.T]
        return model.predict_batches([pa.RecordBatch.from_arrays(columns, names)]).to_numpy()

    return score


def _write_model(subject: Subject, setting: Setting) -> Path:
    """Write the library's own file of a booster, once."""
    is_xgboost = subject.library == "xgboost"
    path = setting.cache / f"{subject.key}.{'json' if is_xgboost else 'txt'}"
    if not path.exists():
        booster = subject.model.get_booster() if is_xgboost else subject.model.booster_
        booster.save_model(path)
    return path


def _ydf(subject: Subject, setting: Setting) -> Score:
    import ydf

    if subject.library != "scikit-learn":
        raise Unsuited("imports scikit-learn's forests only")
    model = ydf.from_sklearn(subject.model)
    return lambda x: model.predict({"features": x}, num_threads=setting.threads)


@dataclass(frozen=True, slots=True)
class Peer:
    """make: of a fitted model, a function that scores. trees: whether it does trees alone.
    asked: run only when named. note: what to know of its numbers."""

    make: Make
    trees: bool = False
    asked: bool = False
    note: str = ""


PEERS: Mapping[str, Peer] = {
    "library": Peer(_library),
    "sqlml": Peer(_sqlml),
    "onnxruntime": Peer(_onnxruntime),
    "hummingbird": Peer(_hummingbird),
    "onedal": Peer(_onedal, trees=True),
    "sklearnex": Peer(_sklearnex, note="fits a model of its own on the same rows"),
    "treelite": Peer(_treelite, trees=True),
    "tl2cgen": Peer(_tl2cgen, trees=True),
    "lleaves": Peer(_lleaves, trees=True),
    "timber": Peer(_timber, trees=True, note="one thread"),
    "quickgrove": Peer(_quickgrove, trees=True, note="one thread"),
    "ydf": Peer(_ydf, trees=True),
    "sqlml torch": Peer(partial(_sqlml, backend="torch"), asked=True),
    "sqlml onnxruntime": Peer(partial(_sqlml, backend="onnxruntime"), asked=True),
}
