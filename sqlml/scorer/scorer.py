"""`compile`: a fitted object as a Scorer, outside SQL, with the source library's own methods."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml import html
from sqlml.backends.base import Compiled, filler_of, text_filler_of
from sqlml.backends.category_lookup import ArrowEncoder, arrow_encoders
from sqlml.backends.costs import current
from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.errors import ConfigError, ScoringError, UnknownCategoryError
from sqlml.explaining.explained import BY_CLASS, OWN, block_of, explained, explained_against
from sqlml.host import LOCAL_FILES
from sqlml.importers.frame import Gaps
from sqlml.importers.model_file import import_file, read_file
from sqlml.importers.registry import import_model
from sqlml.ir import reference
from sqlml.ir.program import Program
from sqlml.passes.order import only
from sqlml.passes.split import PACKED, Layout, Split, text_input
from sqlml.planner.binding.requested_output import index_of, why_none
from sqlml.planner.databases.export_for import export_for
from sqlml.planner.export_bytes import export
from sqlml.planner.program.choose import Choice, choose
from sqlml.planner.program.cost import ROWS
from sqlml.planner.program.prepare import compile_core, prepare
from sqlml.scorer.evaluate import Contributions, Evaluation, evaluated
from sqlml.scorer.input_table import SparseRows, Table, program_inputs
from sqlml.scorer.matrix_path import Direct, DirectTexts, decodes, pool, tasks
from sqlml.types import DATETIME, Array, Feature
from sqlml.udfs.make_function import named

SOME_NS = 50.0
"""The time of a row without an estimate."""

_UNSETTLED: Any = object()
"""In place of how a matrix is scored, until that is known."""

_OPTIONS = ("backend", "strategy", "device", "threads")


class Scorer:
    """A compiled model. Thread-safe and picklable.

    Each method takes a numpy array, a sparse matrix of scipy or a list of rows that are lists
    (columns in training order); a pandas, polars (lazy too), dask or Spark frame, an Arrow table,
    a relation of DuckDB, a mapping of columns or a list of rows that are dicts (by name,
    case-insensitively); a single column if the model has one; and options that override those
    of `compile`. Which methods work depends on the model, as in the source library; the others
    raise an AttributeError that names those that do. Errors about the rows are `ScoringError`s.
    """

    def __init__(
        self,
        program: Program,
        features: Sequence[Feature],
        options: Mapping[str, Any],
        gaps: Gaps | None = None,
    ) -> None:
        self.program = program
        self.features = tuple(features)
        self._options = dict(options)
        self._gaps = gaps or Gaps()
        self._ready: dict[tuple[Any, ...], _Ready] = {}
        self._direct: dict[tuple[str, np.dtype[Any]], Direct | None] = {}
        self._few_texts: dict[str, DirectTexts | None] = {}
        self._labels = [labels.array() for labels in program.labels]
        self._explaining: Scorer | None = None

    def __reduce__(self) -> Any:
        return Scorer, (self.program, self.features, self._options, self._gaps)

    def __repr__(self) -> str:
        names = [feature.name for feature in self.features]
        known = {
            "features": names,
            "outputs": list(self.program.outputs),
            "classes": [value for part in self.program.labels for value in part.values],
            **self._options,
        }
        shown = (f"{name}={_abbreviate(v)}" for name, v in known.items() if v not in (None, []))
        return f"Scorer({', '.join(shown)})"

    def _repr_html_(self) -> str:
        labels = "; ".join(", ".join(map(str, part.values)) for part in self.program.labels)
        told = [
            ("outputs", ", ".join(self.program.outputs)),
            ("features", ", ".join(feature.name for feature in self.features)),
            *([("classes", labels)] if labels else []),
            *((name, str(value)) for name, value in self._options.items() if value is not None),
        ]
        return html.table(("scorer", ""), told)

    @property
    def classes_(self) -> Array | list[Array]:
        """The class labels, (K,), in the model's order; of several targets a list of them.

        Raises:
            AttributeError: the model is not a classifier.
        """
        if not self.program.labels:
            raise AttributeError("this model has no classes")
        classes = [labels.array() for labels in self.program.labels]
        return classes[0] if len(classes) == 1 else classes

    def predict(self, X: Any, **options: Any) -> Array:
        """Labels in their own dtype, or regression values as float64: (n,), or (n, targets)."""
        made = self._directly("label", X, options)
        if made is None:
            made = self._run("label", X, options)
            made = _decoded(made, self._labels) if self._labels else made
        return made[:, 0] if made.ndim == 2 and made.shape[1] == 1 else made

    def predict_proba(self, X: Any, **options: Any) -> Array | list[Array]:
        """Class probabilities (n, K), in the order of `classes_`.

        Of several targets, as the source library has it: a list with (n, K) for each target, or
        (n, targets) with the probability of each target's second class.
        """
        result = self._values("proba", X, options)
        if len(self._labels) < 2 or self.program.one_probability:
            return result
        sizes = [len(labels) for labels in self._labels]
        return np.split(result, np.cumsum(sizes)[:-1], axis=1)

    def decision_function(self, X: Any, **options: Any) -> Array:
        """Margins: (n,) for two classes or one score, else (n, K)."""
        result = self._values("score", X, options)
        return result[:, 0] if result.shape[1] == 1 else result

    def score_samples(self, X: Any, **options: Any) -> Array:
        """The density or anomaly score of each row: (n,)."""
        return self._values("samples", X, options)[:, 0]

    def transform(self, X: Any, **options: Any) -> Array:
        """The transformed columns, (n, k) float64; (n,) where the source has it so: the codes of a
        LabelEncoder, int64, and what IsotonicRegression predicts. Filled strings are objects."""
        made = self._values("transform", X, options)
        ends = self.program.outputs
        flat = made.dtype == np.int64 or ends["transform"] == ends.get("label")
        return made[:, 0] if flat and made.shape[1] == 1 else made

    def evaluate(
        self, X: Any, y: Any, *, sample_weight: Any = None
    ) -> Evaluation | list[Evaluation]:
        """How good the model is on rows with labels, as `ml_evaluate` says it in SQL.

        Args:
            X: n rows, as `predict` takes them.
            y: (n,) labels, or (n, targets); rows whose label is None or NaN are left out.
            sample_weight: (n,) weights of the rows.

        Returns:
            Name of a metric -> its value, None where the rows do not define it; a list of those
            for several targets.

        Raises:
            ConfigError: a label that is not a class of the model, or no label at all.
        """
        return evaluated(self, X, y, sample_weight)

    def explain(
        self,
        X: Any,
        *,
        label: Any = None,
        background: Any = None,
        permutations: int | None = None,
        **options: Any,
    ) -> Contributions:
        """What each column contributes to the score of each row: Shapley values.

        Without a background they are path-dependent ones of trees, and weight times value of linear
        models. Of two classes the second is explained, of more the class that is predicted.

        Args:
            X: n rows, as `predict` takes them.
            label: the class that is explained in place of these.
            background: 1 to 1,000 rows, as X; a row is compared with the mean over these. Of models
                that are no sums of what single columns contribute, the values are estimates then.
            permutations: pairs of random orders of the columns that an estimate tries for each
                background row, up to 1,000; four times as many halve its error.
            options: as `predict` takes them.

        Raises:
            UnsupportedModelError: the model needs a background, or cannot be explained.
            ConfigError: a label that is not a class of the model, no background rows, or
                permutations without a background.
        """
        if permutations is not None and background is None:
            raise ConfigError("permutations goes with a background: nothing is estimated without")
        scorer = self._explainer(background, permutations)
        program = scorer.program
        if label is None:
            made = scorer._values(OWN, X, options)
            return Contributions.of(made, program, self.features)
        if len(program.labels) != 1:
            many = "predicts several labels" if program.labels else "has no classes"
            raise ConfigError(f"label={label!r} names a class, and this model {many}")
        place = index_of(program.labels[0], label)
        if place is None:
            known = ", ".join(map(repr, program.labels[0].values[:20]))
            raise ConfigError(f"{label!r} is not a class of this model; its classes: {known}")
        block = block_of(program)
        made = scorer._values(BY_CLASS, X, options)
        own = made[:, place * block : (place + 1) * block]
        return Contributions.of(own, program, self.features)

    def _explainer(self, background: Any, permutations: int | None) -> Scorer:
        """A Scorer whose outputs are the contributions, too."""
        if background is not None:
            rows = program_inputs(self.program, background, self.features, self._gaps)
            made = explained_against(self.program, rows, permutations)
            return Scorer(made, self.features, self._options, self._gaps)
        if self._explaining is None:
            made = explained(self.program)
            self._explaining = Scorer(made, self.features, self._options, self._gaps)
        return self._explaining

    def to_onnx(self) -> bytes:
        """The model as an ONNX file: one input (N, 1) per column, outputs by name.

        Raises:
            BackendError: ONNX has no equivalent of an operator of the model; the message names it.
            MissingDependencyError: onnx is not installed.
        """
        return export(self.program, "ONNX")

    def to_sql(
        self,
        dialect: str,
        *,
        table: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        form: str | None = None,
        name: str = "model",
    ) -> str:
        """The model as SQL of a database in which sqlml does not run.

        Args:
            dialect: "postgres", "sqlite", "snowflake", ..; docs/databases.md has all of them.
            table: what is scored; a sequence names a schema before the table.
            columns: of the table, beside the predictions; by default those that the model reads.
            form: "select", "view" or "function"; by default a query, or functions without a table.
            name: of the functions, and of the view before "_scores".

        Raises:
            BackendError: that database's SQL cannot express the model; the message says why.
            ConfigError: an unknown database or form, or no table.
        """
        return export_for(
            self.program,
            self.features,
            name,
            dialect,
            form=form,
            table=[table] if isinstance(table, str) else table,
            columns=columns,
            options=self._options,
        )

    def _run(self, output: str, X: Any, options: Mapping[str, Any]) -> Array:
        if output not in self.program.outputs:
            have = ", ".join(self.program.outputs)
            raise AttributeError(
                f"this model has no output {output!r}; it has {have}"
                + why_none(output, self.program)
            )
        chosen = _checked({**self._options, **options}) if options else self._options
        table = Table.of(X, self.features, self._gaps)
        if self.program.output_type(output).dtype == "string":
            return self._texts(output, table)
        ready = self._ready_for(output, table.layout, chosen)
        threads = int(chosen.get("threads") or os.cpu_count() or 1)
        parts = tasks(table.rows, threads, ready.row_ns)
        one = threads == 1 or not ready.on_cpu
        if isinstance(table.matrix, SparseRows):
            parts = min(table.matrix.parts, parts, key=lambda parts: parts[0].stop)
        elif one:
            parts = parts[:1]
        if len(parts) == 1:
            return ready.score(table)
        run = map if one else pool(threads).map
        return np.concatenate(
            list(run(lambda part: ready.score(table.slice(part.start, part.stop)), parts))
        )

    def _texts(self, output: str, table: Table) -> Array:
        """An output of strings, (n, k) objects: no backend has anything faster than numpy."""
        program = only(self.program, [output])
        return reference.run(program, {n: table.objects(n) for n in program.inputs})[output]

    def _values(self, output: str, X: Any, options: Mapping[str, Any]) -> Array:
        made = self._directly(output, X, options)
        return self._run(output, X, options) if made is None else made

    def _directly(self, output: str, x: Any, options: Mapping[str, Any]) -> Array | None:
        """The output of a matrix (labels as such) without a copy of it, or None: use `_run`."""
        if options:
            return None
        if type(x) is not np.ndarray or x.dtype == object:
            return self._texts_directly(output, x)
        try:
            direct = self._direct[output, x.dtype]
        except KeyError:
            direct = _UNSETTLED
        if direct is _UNSETTLED:  # not above, where what it raises would come with a KeyError
            try:
                with no_wait():
                    direct = self._direct[output, x.dtype] = self._direct_for(output, x.dtype)
            except NotReady:
                return None
        if direct is None or x.ndim != 2 or x.shape[1] != direct.width or not x.flags.aligned:
            return None
        try:
            return direct.score(x)
        except NotReady:
            return None

    def _texts_directly(self, output: str, x: Any) -> Array | None:
        direct = self._few_texts.get(output, _UNSETTLED)
        if direct is _UNSETTLED:
            try:
                with no_wait():
                    direct = self._few_texts[output] = self._few_texts_for(output)
            except NotReady:
                return None
        made = None if direct is None else direct.score(x)
        if made is None or output != "label" or not self._labels:
            return made
        return _decoded(made, self._labels)

    def _few_texts_for(self, output: str) -> DirectTexts | None:
        program = self.program
        if output not in program.outputs or program.output_type(output).dtype == "string":
            return None
        if not all(program.input_type(name).dtype == "string" for name in program.inputs):
            return None
        ready = self._ready_for(output, "f64", self._options)
        split = ready.split
        if split.encoders is not None or split.columns or not split.texts:
            return None
        filler = text_filler_of(ready.core, output)
        if filler is None or filler.reads_rows or not filler.texts:
            return None
        follower = filler.follower(1)
        if follower is None:
            return None
        place = {feature.name: i for i, feature in enumerate(self.features)}
        return DirectTexts(filler, follower, self.features, [place[name] for name in split.texts])

    def _direct_for(self, output: str, dtype: np.dtype[Any]) -> Direct | None:
        if dtype not in (np.float32, np.float64) or output not in self.program.outputs:
            return None
        if any(feature.kind == DATETIME for feature in self.features):
            return None
        ready = self._ready_for(output, "f32" if dtype == np.float32 else "f64", self._options)
        split = ready.split
        if split.encoders is not None or split.texts or not split.columns:
            return None
        place = {feature.name: i for i, feature in enumerate(self.features)}
        columns = [place[column.name] for column in split.columns]
        filler = filler_of(ready.core, output, columns, len(self.features))
        labels = self._labels if output == "label" else []
        if filler is None or not decodes(filler, labels):
            return None
        threads = self._options.get("threads")
        return Direct(filler, len(self.features), threads, ready.row_ns, labels)

    def _ready_for(self, output: str, layout: Layout, options: Mapping[str, Any]) -> _Ready:
        """Compiled once for each output, layout and choice of a backend."""
        wanted = {k: str(v).lower() for k, v in options.items() if k != "threads"}
        key = (output, layout, *sorted(wanted.items()))
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = _ready(self.program, output, layout, options)
        return ready


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """One output of a model, compiled: `core` is all of it but the codes of strings.

    These come from Arrow columns by `look_up`, otherwise by `encode`. A row
    takes about `row_ns` nanoseconds.
    """

    output: str
    split: Split
    core: Compiled
    encode: Compiled | None
    look_up: Mapping[str, tuple[str, ArrowEncoder]] | None
    dtype: np.dtype[Any]
    on_cpu: bool
    row_ns: float

    def score(self, table: Table) -> Array:
        """The output for the rows of a table, (n, k).

        It is there soon: where kernels are still to be compiled, a slower way makes it.
        """
        try:
            with no_wait():
                return self._score(table)
        except NotReady:  # a kernel for which there is no slower way
            return self._score(table)

    def _score(self, table: Table) -> Array:
        codes: Mapping[str, Array] = {}
        if self.look_up is not None:
            texts = {name: table.strings(name) for name, _ in self.look_up.values()}
            codes = {code: encode(texts[name]) for code, (name, encode) in self.look_up.items()}
        elif self.encode is not None:
            codes = self.encode.run({n: table.objects(n) for n in self.encode.program.inputs})
        packed = table.packed(self.split.columns, codes, self.dtype)
        inputs: dict[str, Any] = {PACKED: packed}
        for place, name in enumerate(self.split.texts):
            inputs[text_input(place)] = table.texts(name)
        try:
            return self.core.run(inputs, (self.output,))[self.output]
        except UnknownCategoryError as error:
            raise named(error, self.split.core, inputs, table.value) from None


def _ready(program: Program, output: str, layout: Layout, options: Mapping[str, Any]) -> _Ready:
    parts = prepare(program, output, None, layout).split
    choice = choose(parts.core, options, batch=ROWS)  # a caller's rows come all at once
    encoders = parts.encoders
    look_up = None if encoders is None else arrow_encoders(encoders)
    return _Ready(
        output,
        parts,
        compile_core(parts.core, choice),
        None if encoders is None or look_up else compile_core(encoders, choose(encoders, {})),
        look_up,
        np.dtype(parts.core.input_type(PACKED).dtype),
        choice.device == "cpu",
        _row_ns(choice, len(parts.columns)),
    )


def _row_ns(choice: Choice, columns: int) -> float:
    """The estimated time of a row, without the engine's time to pass it on."""
    if not choice.estimates:
        return SOME_NS
    handing = columns * current()["udf.number"]
    return max(1.0, choice.estimates[0].seconds / ROWS * 1e9 - handing)


def _decoded(indices: Array, labels: Sequence[Array]) -> Array:
    """(n, targets) class numbers as labels; objects where the targets' labels differ in kind."""
    columns = []
    for column, known in zip(indices.T, labels, strict=True):
        if column.size and not (column.min() >= 0 and column.max() < len(known)):
            raise ScoringError("the model returned the index of a label that it does not have")
        columns.append(known.take(column))
    if len({known.dtype.kind for known in labels}) > 1:
        columns = [column.astype(object) for column in columns]
    return np.stack(columns, axis=1)


def compile(
    model: Any,
    inputs: Sequence[str] | Mapping[str, str] | None = None,
    *,
    allow_pickle: bool = False,
    **options: Any,
) -> Scorer:
    """Compile a fitted object or a model file to a Scorer, which no longer needs its library.

    Args:
        model: a fitted estimator or pipeline of scikit-learn, a booster of XGBoost, LightGBM or
            CatBoost, an ONNX ModelProto, a torch module or exported program, or a Program; or the
            path of a file or folder that CREATE MODEL takes.
            docs/operators.md lists what is covered.
        inputs: names of the columns in training order (or name -> SQL type), where the object was
            fitted without names; a matrix needs none.
        allow_pickle: read a file that is a pickle, which executes code.
        options: `backend` ("auto", "native", "reference", "torch", "onnxruntime"), `strategy` for
            trees ("auto", or what the backend has: "traverse", "cursor", "descent", "lockstep";
            "gemm", "tt", "ptt", and "fused" on a GPU), `device` ("auto", "cpu", "cuda"), `threads`
            (default: all cores).

    Raises:
        UnsupportedModelError: an estimator or parameter that sqlml does not cover, by name.
        ConfigError: no such option, backend, strategy or device; or `inputs` does not fit.
        MissingDependencyError: the backend's library is not installed.
        ArtifactError: there is no such file, or it is damaged.
        UntrustedArtifactError: the file is a pickle.

    A backend that cannot run this model raises BackendError: here if its trees are too large for
    the strategy, otherwise with the first batch.

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = LogisticRegression().fit(x, ["low", "low", "high", "high"])
    >>> compile(model).predict(x).tolist()
    ['low', 'low', 'high', 'high']
    """
    checked = _checked(options)
    if isinstance(model, Program):
        program, features, gaps = model, model.features, Gaps()
    else:
        if isinstance(model, str | os.PathLike):
            file = read_file(os.fspath(model), LOCAL_FILES, allow_pickle=allow_pickle)
            imported = import_file(file, inputs)
        else:
            imported = import_model(model, inputs)
        program, features, gaps = imported.program, imported.features, imported.gaps
    if checked:
        choose(program, checked)  # the names of the options, before a batch needs them
    return Scorer(program, features, checked, gaps)


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in _OPTIONS:
            raise ConfigError(f"unknown option {name!r}; options: {', '.join(_OPTIONS)}")
    threads = options.get("threads")
    if threads is not None and (type(threads) is not int or threads < 1):
        raise ConfigError(f"threads must be a positive integer, not {threads!r}")
    return dict(options)


def _abbreviate(value: Any) -> str:
    """Return the repr of a value, of a long list its first elements.

    >>> _abbreviate(list(range(30)))
    '[0, 1, 2, 3, 4, 5, 6, 7, .. (30)]'
    """
    if not isinstance(value, list) or len(value) <= 10:
        return repr(value)
    return f"[{', '.join(map(repr, value[:8]))}, .. ({len(value)})]"
