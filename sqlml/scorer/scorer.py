"""Scoring outside SQL: `compile` returns a `Scorer` with the methods of the source library."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

import numpy as np

from sqlml import html
from sqlml.backends.no_wait import NotReady, no_wait
from sqlml.catalog.small_models import (
    COVERAGE,
    DEFAULT_COVERAGE,
    Calibration,
    format_coverage,
    load_small_model,
)
from sqlml.errors import ConfigError, UnsupportedModelError
from sqlml.explaining import explained
from sqlml.host import LOCAL_FILES
from sqlml.importers.frame import MissingValueRules
from sqlml.importers.model_checks import check_model
from sqlml.importers.model_file import import_file, read_file
from sqlml.importers.registry import import_model
from sqlml.importers.sqlml_file import StoredModel
from sqlml.ir import reference
from sqlml.ir.ops import CALIBRATED_OUTPUTS, OUTPUTS
from sqlml.ir.program import Program
from sqlml.parsing.statements import OtherDatabase
from sqlml.passes import select_outputs
from sqlml.passes.fold_arguments import fold_input
from sqlml.passes.split import Layout
from sqlml.passes.tree_stages import LEAF, add_leaves, keep_stages
from sqlml.planner.binding.requested_output import explain_missing_output, find_label
from sqlml.planner.databases.export_for import export_for
from sqlml.planner.export_bytes import export_to_bytes
from sqlml.planner.program.choose import choose_way
from sqlml.scorer import scoring_paths
from sqlml.scorer.evaluate import Contributions, Evaluation, evaluate
from sqlml.scorer.input_table import SparseRows, Table, read_program_inputs
from sqlml.scorer.scoring_paths import CompiledOutput, FewTextsScorer, MatrixScorer, compile_output
from sqlml.types import DATETIME, Array, Feature

Rows = Any
"""Rows in any form that a Scorer accepts. The docstring of `Scorer` lists the types."""

_UNDECIDED: Any = object()
"""Marks a scoring path that is not chosen yet."""


_MAX_RANGE_SCORERS = 32
"""The maximum number of coverages for which a Scorer keeps compiled intervals or sets."""


class ScorerOptions(TypedDict, total=False):
    """Keyword options of `compile` and of a Scorer's methods.

    Attributes:
        backend: "auto", "native", "reference", "torch" or "onnxruntime".
        strategy: how trees are evaluated: "auto", or a strategy that the backend supports, such as
            "traverse", "cursor", "descent", "lockstep", "gemm", "tt", "ptt", or "fused" on a GPU.
        device: "auto", "cpu" or "cuda".
        threads: the number of threads; all cores by default.
        trees: the number of boosting iterations, or of trees of a forest, to score with; all by
            default. As in the source library, these are the first ones.
    """

    backend: str
    strategy: str
    device: str
    threads: int | None
    trees: int | None


_OUTPUT_OF_METHOD = {
    "predict": "label",
    "evaluate": "label",
    "predict_proba": "proba",
    "decision_function": "score",
    "score_samples": "samples",
    "transform": "transform",
}
"""Maps each method to the output that the model must have."""


class Scorer:
    """A compiled model, which is thread-safe and picklable.

    Each method accepts rows in one of these forms:

    * Columns in training order: a numpy array, a scipy sparse matrix, or a list of lists.
    * Columns matched by name in any case: a frame of pandas, polars (also lazy), dask or Spark, an
      Arrow table, a DuckDB relation, a mapping of columns, or a list of dicts.
    * A single column, if the model has only one column.

    The options of a method override the options of `compile`. If the model lacks the output of a
    method, the method raises AttributeError, as in the source library. The message lists the
    outputs of the model. Errors in the rows raise `ScoringError`.

    Attributes:
        program: the imported model.
        features: the columns of the training data, in order.
    """

    def __init__(
        self,
        program: Program,
        features: Sequence[Feature],
        options: Mapping[str, Any],
        gaps: MissingValueRules | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self.program: Program = program
        self.features: tuple[Feature, ...] = tuple(features)
        self._options = dict(options)
        self._gaps = gaps or MissingValueRules()
        self._calibration = calibration
        self._range_scorers: dict[float, Scorer] = {}
        self._compiled: dict[tuple[Any, ...], CompiledOutput] = {}
        self._matrix_scorers: dict[tuple[str, np.dtype[Any]], MatrixScorer | None] = {}
        self._text_scorers: dict[str, FewTextsScorer | None] = {}
        self._labels = [labels.array() for labels in program.labels]
        self._variants: dict[object, Scorer] = {}

    def __reduce__(self) -> Any:
        return Scorer, (self.program, self.features, self._options, self._gaps, self._calibration)

    def __repr__(self) -> str:
        attributes = {
            "features": [feature.name for feature in self.features],
            "outputs": list(self.program.outputs),
            "classes": [value for labels in self.program.labels for value in labels.values],
            **self._options,
        }
        assignments = (
            f"{name}={_abbreviate(v)}" for name, v in attributes.items() if v not in (None, [])
        )
        return f"Scorer({', '.join(assignments)})"

    def __dir__(self) -> list[str]:
        """List the attributes that this model supports; a regressor has no `predict_proba`."""
        outputs = self.program.outputs
        unsupported = {name for name, output in _OUTPUT_OF_METHOD.items() if output not in outputs}
        if not self.program.labels:
            unsupported.add("classes_")
        if not any(node.op == "tree_ensemble" for node in self.program):
            unsupported.add("predict_leaf")
        range_output = None if self._calibration is None else self._calibration.output
        unsupported |= {f"predict_{name}" for name in ("interval", "set") if name != range_output}
        names = set(object.__dir__(self)) - unsupported
        return sorted(n for n in names if not n.startswith("_") or n.startswith("__"))

    def _repr_html_(self) -> str:
        labels = "; ".join(", ".join(map(str, target.values)) for target in self.program.labels)
        properties = [
            ("outputs", ", ".join(self.program.outputs)),
            ("features", ", ".join(feature.name for feature in self.features)),
            *([("classes", labels)] if labels else []),
            *((name, str(value)) for name, value in self._options.items() if value is not None),
        ]
        return html.table(("scorer", ""), properties)

    @property
    def classes_(self) -> Array | list[Array]:
        """The class labels (K,) in the model's order, or one such array per target.

        Raises:
            AttributeError: the model is not a classifier.
        """
        if not self.program.labels:
            raise AttributeError("this model has no classes")
        classes = [labels.array() for labels in self.program.labels]
        return classes[0] if len(classes) == 1 else classes

    def predict(self, X: Rows, **options: Unpack[ScorerOptions]) -> Array:
        """Predict labels in the dtype of `classes_`, or regression values as float64.

        The result has the shape (n,), or (n, targets) if there are several targets.
        """
        labels = self._try_fast_score("label", X, options)
        if labels is None:
            labels = self._run("label", X, options)
            labels = scoring_paths.decode_labels(labels, self._labels) if self._labels else labels
        return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels

    def predict_proba(self, X: Rows, **options: Unpack[ScorerOptions]) -> Array | list[Array]:
        """Return the class probabilities (n, K), in the order of `classes_`.

        For several targets, the result has the form of the source library: either a list with an
        array (n, K) per target, or an array (n, targets) with the probabilities of second classes.
        """
        result = self._score("proba", X, options)
        if len(self._labels) < 2 or self.program.has_one_probability_per_target:
            return result
        sizes = [len(labels) for labels in self._labels]
        return np.split(result, np.cumsum(sizes)[:-1], axis=1)

    def predict_interval(
        self, X: Rows, *, coverage: float = DEFAULT_COVERAGE, **options: Unpack[ScorerOptions]
    ) -> Array:
        """Return the lower and upper ends (n, 2) of intervals that cover the true values.

        The model is a file that `EXPORT MODEL` wrote of a calibrated version. If its calibration
        has groups, the rows need the column of the groups, after the other columns if unnamed.

        Args:
            X: n rows, in any form that `predict` accepts.
            coverage: the probability with which the true value is covered, between 0 and 1.
            options: the same options as for `predict`.

        Raises:
            AttributeError: the model is not calibrated, or predicts classes.
            ConfigError: `coverage` is not between 0 and 1, or the calibration has too few rows.
        """
        return self._score_range("interval", X, coverage, options)

    def predict_set(
        self, X: Rows, *, coverage: float = DEFAULT_COVERAGE, **options: Unpack[ScorerOptions]
    ) -> Array:
        """Return which classes (n, K) belong to the sets that cover the true classes, as booleans.

        The columns are in the order of `classes_`. The arguments and the errors are those of
        `predict_interval`.
        """
        return self._score_range("set", X, coverage, options) > 0

    def decision_function(self, X: Rows, **options: Unpack[ScorerOptions]) -> Array:
        """Return the margins, with shape (n,) for two classes or a single score, or (n, K)."""
        result = self._score("score", X, options)
        return result[:, 0] if result.shape[1] == 1 else result

    def score_samples(self, X: Rows, **options: Unpack[ScorerOptions]) -> Array:
        """Return the density or anomaly score (n,) of the rows."""
        return self._score("samples", X, options)[:, 0]

    def transform(self, X: Rows, **options: Unpack[ScorerOptions]) -> Array:
        """Return the transformed columns (n, k) as float64, or as objects if some are strings.

        As in the source library, the result has the shape (n,) for the int64 codes of a
        LabelEncoder and the predictions of an IsotonicRegression.
        """
        result = self._score("transform", X, options)
        outputs = self.program.outputs
        is_flat = result.dtype == np.int64 or outputs["transform"] == outputs.get("label")
        return result[:, 0] if is_flat and result.shape[1] == 1 else result

    def predict_leaf(self, X: Rows, **options: Unpack[ScorerOptions]) -> Array:
        """Return the leaf of each row in each tree, int32 (n, trees).

        The numbers are those of the source library: of scikit-learn's `apply`, flattened to two
        axes, of `pred_leaf` in XGBoost and LightGBM, or of `calc_leaf_indexes` in CatBoost.

        Raises:
            UnsupportedModelError: the model is not a single ensemble of trees.
        """
        if options.get("trees") is not None:
            return self._keep_trees(options.pop("trees")).predict_leaf(X, **options)
        scorer = self._variants.get(LEAF)
        if scorer is None:
            try:
                scorer = self._variants[LEAF] = self._with_program(add_leaves(self.program))
            except UnsupportedModelError as error:
                message = f"predict_leaf does not fit this model: {error}"
                raise UnsupportedModelError(message) from None
        return scorer._score(LEAF, X, options).astype(np.int32)

    def evaluate(
        self, X: Rows, y: Rows, *, sample_weight: Rows = None
    ) -> Evaluation | list[Evaluation]:
        """Compute the metrics of the model on labeled rows, as `ml_evaluate` does in SQL.

        Args:
            X: n rows, in any form that `predict` accepts.
            y: labels (n,) or (n, targets). Rows whose label is None or NaN are skipped.
            sample_weight: weights (n,) of the rows.

        Returns:
            A mapping of metric names to values, or to None if a metric is undefined for these rows.
            For several targets, a list with one mapping per target.

        Raises:
            ConfigError: a label is not a class of the model, or all labels are missing.
        """
        return evaluate(self, X, y, sample_weight)

    def explain(
        self,
        X: Rows,
        *,
        label: object = None,
        background: Rows = None,
        permutations: int | None = None,
        **options: Unpack[ScorerOptions],
    ) -> Contributions:
        """Return the contribution of each column to the score of each row, as Shapley values.

        Without a background, the values of tree models are path-dependent (Lundberg et al., "From
        local explanations to global understanding with explainable AI for trees", 2020), and those
        of linear models are weight times value. With two classes, the score of the second class is
        explained. With more classes, the score of the predicted class is explained. In contrast,
        `Session.explain` returns the plan of a query.

        Args:
            X: n rows, in any form that `predict` accepts.
            label: the class to explain instead of the default class.
            background: 1 to 1,000 rows in the form of `X`. The score of each row is compared with
                the mean score of these rows. Unless the model is additive, values are estimates.
            permutations: pairs of random column orders to try for each background row, up to 1,000.
                Four times as many pairs halve the error of the estimates.
            options: the same options as for `predict`.

        Raises:
            UnsupportedModelError: the model needs a background, or cannot be explained.
            ConfigError: `label` is not a class of the model, `background` has no rows, or
                `permutations` is passed without a background.
        """
        if permutations is not None and background is None:
            message = "permutations needs a background, because only then are values estimated"
            raise ConfigError(message)
        if options.get("trees") is not None:
            further = {"background": background, "permutations": permutations}
            scorer = self._keep_trees(options.pop("trees"))
            return scorer.explain(X, label=label, **further, **options)
        scorer = self._make_explainer(background, permutations)
        program = scorer.program
        if label is None:
            blocks = scorer._score(explained.OWN, X, options)
            return Contributions.of(blocks, program, self.features)
        if len(program.labels) != 1:
            reason = "predicts several labels" if program.labels else "has no classes"
            raise ConfigError(f"label={label!r} names a class, but this model {reason}")
        class_index = find_label(program.labels[0], label)
        if class_index is None:
            classes = ", ".join(map(repr, program.labels[0].values[:20]))
            raise ConfigError(f"{label!r} is not a class of this model; its classes: {classes}")
        width = explained.find_block_size(program)
        class_blocks = scorer._score(explained.BY_CLASS, X, options)
        blocks = class_blocks[:, class_index * width : (class_index + 1) * width]
        return Contributions.of(blocks, program, self.features)

    def _score_range(
        self, output: str, X: Rows, coverage: float, options: Mapping[str, Any]
    ) -> Array:
        if options.get("trees") is not None:
            raise ConfigError("trees does not fit intervals and sets, which calibrate all trees")
        return self._make_range_scorer(output, coverage)._run(output, X, options)

    def _make_range_scorer(self, output: str, coverage: float) -> Scorer:
        """Return a Scorer of the intervals or sets of one coverage."""
        calibration = self._calibration
        if calibration is None or calibration.output != output:
            reason = "is not calibrated" if calibration is None else f"has no {output}s"
            advice = "ALTER MODEL ... CALIBRATE and EXPORT MODEL make a file of a calibrated model"
            raise AttributeError(f"this model {reason}; {advice}")
        if isinstance(coverage, bool) or not 0 < coverage < 1:
            raise ConfigError(f"coverage must be between 0 and 1, such as 0.9, not {coverage!r}")
        if coverage > calibration.facts.highest:
            highest = format_coverage(calibration.facts.highest)
            message = (
                f"coverage {coverage} is too high: the calibration rows allow at most {highest}"
            )
            raise ConfigError(message)
        scorer = self._range_scorers.get(coverage)
        if scorer is None:
            if len(self._range_scorers) >= _MAX_RANGE_SCORERS:
                self._range_scorers.clear()
            small = calibration.small
            program = fold_input(small, COVERAGE, float(coverage))
            known_names = {feature.name for feature in self.features} | {COVERAGE}
            features = (*self.features, *(f for f in small.features if f.name not in known_names))
            scorer = Scorer(program, features, self._options, self._gaps)
            self._range_scorers[coverage] = scorer
        return scorer

    def _make_explainer(self, background: Rows, permutations: int | None) -> Scorer:
        if background is not None:
            rows = read_program_inputs(self.program, background, self.features, self._gaps)
            program = explained.explain_against_background(self.program, rows, permutations)
            return self._with_program(program)
        scorer = self._variants.get(explained.OWN)
        if scorer is None:
            scorer = self._with_program(explained.explain_program(self.program))
            self._variants[explained.OWN] = scorer
        return scorer

    def to_onnx(self) -> bytes:
        """Export the model as the bytes of an ONNX file, with one input (N, 1) per column.

        Raises:
            BackendError: ONNX does not support an operator that the message names.
            MissingDependencyError: onnx is not installed.
        """
        return export_to_bytes(self.program, "ONNX")

    def to_sql(
        self,
        dialect: str,
        *,
        table: str | Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        form: str | None = None,
        name: str = "model",
    ) -> str:
        """Return SQL that computes the model in another database, without sqlml.

        Args:
            dialect: "postgres", "sqlite", "snowflake", ...; docs/databases.md lists all dialects.
            table: the table to score, or a sequence of the schema and the table.
            columns: table columns to return with the predictions. The default is the columns that
                the model reads.
            form: "select", "view" or "function". The default is "select" if `table` is passed, and
                "function" otherwise.
            name: the name of the functions. A view is named `name` with the suffix "_scores".

        Raises:
            BackendError: the SQL of the database cannot express the model. The message says why.
            ConfigError: the database or form is unknown, or the form needs a table.
        """
        table_names = (table,) if isinstance(table, str) else table
        tuples = [None if names is None else tuple(names) for names in (table_names, columns)]
        target = OtherDatabase(dialect, form, *tuples)
        return export_for(self.program, self.features, name, target, self._options)

    def to_extension(
        self, path: str | os.PathLike[str], *, name: str | None = None, platform: str | None = None
    ) -> None:
        """Write the model to `path` as an extension of DuckDB, which any of its clients can load.

        After `LOAD './churn.duckdb_extension'`, `churn(..)` predicts and `churn_info()` lists the
        other functions; docs/clients.md describes them. The arguments are the columns in training
        order. The file has no signature, so DuckDB loads it only with `allow_unsigned_extensions`.

        Args:
            path: the path of the file; its name must end in ".duckdb_extension".
            name: the name of the functions. The default is the file's name without the suffix.
            platform: DuckDB's name of the platform that will load the file, such as "linux_arm64".
                The default is this platform.

        Raises:
            BackendError: the model needs Python to be scored. The message says why.
            ConfigError: the platform is unknown, or the file's name does not fit.
            OSError: the file cannot be written.
        """
        # The writer of extensions imports much that scoring does without.
        from sqlml.udfs.duckdb.native.export_extension import (
            ExportedModel,
            export_extension,
            find_extension_name,
            write_extension_file,
        )

        file_path = os.fspath(path)
        model_name = find_extension_name(file_path) if name is None else name
        model = ExportedModel(model_name, self.program, self.features)
        write_extension_file(file_path, export_extension([model], file_path, platform))

    def _score(self, output: str, X: Rows, options: Mapping[str, Any]) -> Array:
        result = self._try_fast_score(output, X, options)
        return self._run(output, X, options) if result is None else result

    def _run(self, output: str, X: Rows, options: Mapping[str, Any]) -> Array:
        if output not in self.program.outputs:
            outputs = ", ".join(self.program.outputs)
            reason = explain_missing_output(output, self.program)
            raise AttributeError(f"this model has no output {output!r}; it has {outputs}{reason}")
        options = _check_options({**self._options, **options}) if options else self._options
        if options.get("trees") is not None:
            others = {name: value for name, value in options.items() if name != "trees"}
            return self._keep_trees(options["trees"])._run(output, X, others)
        table = Table.of(X, self.features, self._gaps)
        if self.program.output_type(output).dtype == "string":
            return self._run_texts(output, table)
        compiled = self._compile_output(output, table.layout, options)
        threads = int(options.get("threads") or os.cpu_count() or 1)
        slices = scoring_paths.split_rows(table.rows, threads, compiled.row_ns)
        is_serial = threads == 1 or not compiled.on_cpu
        if isinstance(table.matrix, SparseRows):
            slices = min(table.matrix.parts, slices, key=lambda parts: parts[0].stop)
        elif is_serial:
            slices = slices[:1]
        if len(slices) == 1:
            return compiled.score(table)

        def score_part(rows: slice) -> Array:
            return compiled.score(table.slice(rows.start, rows.stop))

        map_parts = map if is_serial else scoring_paths.get_thread_pool(threads).map
        return np.concatenate(list(map_parts(score_part, slices)))

    def _keep_trees(self, count: Any) -> Scorer:
        _check_options({"trees": count})
        scorer = self._variants.get(count)
        if scorer is None:
            program = _keep_trees(self.program, count)
            scorer = self._variants[count] = self._with_program(program)
        return scorer

    def _with_program(self, program: Program) -> Scorer:
        return Scorer(program, self.features, self._options, self._gaps)

    def _run_texts(self, output: str, table: Table) -> Array:
        """Compute a string output (n, k) with numpy, since no backend is faster."""
        program = select_outputs(self.program, [output])
        return reference.run(program, {n: table.read_objects(n) for n in program.inputs})[output]

    def _try_fast_score(self, output: str, x: Rows, options: Mapping[str, Any]) -> Array | None:
        """Score a matrix or a few strings, or return None if no fast path applies."""
        if options:
            return None
        if type(x) is not np.ndarray or x.dtype == object:
            return self._try_text_score(output, x)
        scorer: MatrixScorer | None = self._matrix_scorers.get((output, x.dtype), _UNDECIDED)
        if scorer is _UNDECIDED:
            try:
                with no_wait():
                    scorer = self._make_matrix_scorer(output, x.dtype)
            except NotReady:
                return None
            self._matrix_scorers[output, x.dtype] = scorer
        if scorer is None or x.ndim != 2 or x.shape[1] != scorer.width or not x.flags.aligned:
            return None
        try:
            return scorer.score(x)
        except NotReady:
            return None

    def _try_text_score(self, output: str, x: Rows) -> Array | None:
        scorer = self._text_scorers.get(output, _UNDECIDED)
        if scorer is _UNDECIDED:
            try:
                with no_wait():
                    scorer = self._text_scorers[output] = self._make_text_scorer(output)
            except NotReady:
                return None
        result = None if scorer is None else scorer.score(x)
        if result is None or output != "label" or not self._labels:
            return result
        return scoring_paths.decode_labels(result, self._labels)

    def _make_text_scorer(self, output: str) -> FewTextsScorer | None:
        program = self.program
        if output not in program.outputs or program.output_type(output).dtype == "string":
            return None
        if not all(program.input_type(name).dtype == "string" for name in program.inputs):
            return None
        compiled = self._compile_output(output, "f64", self._options)
        return FewTextsScorer.of(compiled, self.features)

    def _make_matrix_scorer(self, output: str, dtype: np.dtype[Any]) -> MatrixScorer | None:
        if dtype not in (np.float32, np.float64) or output not in self.program.outputs:
            return None
        if any(feature.kind == DATETIME for feature in self.features):
            return None
        layout: Layout = "f32" if dtype == np.float32 else "f64"
        compiled = self._compile_output(output, layout, self._options)
        labels = self._labels if output == "label" else []
        return MatrixScorer.of(compiled, self.features, labels, self._options.get("threads"))

    def _compile_output(
        self, output: str, layout: Layout, options: Mapping[str, Any]
    ) -> CompiledOutput:
        key_options = {name: str(v).lower() for name, v in options.items() if name != "threads"}
        key = (output, layout, *sorted(key_options.items()))
        if key not in self._compiled:
            self._compiled[key] = compile_output(self.program, output, layout, options)
        return self._compiled[key]


def compile(
    model: object,
    inputs: Sequence[str] | Mapping[str, str] | None = None,
    *,
    allow_pickle: bool = False,
    **options: Unpack[ScorerOptions],
) -> Scorer:
    """Compile a fitted object or a model file to a Scorer that no longer needs the source library.

    Args:
        model: a fitted scikit-learn estimator or pipeline, an XGBoost, LightGBM or CatBoost model,
            an ONNX ModelProto, a torch module or exported program, a Program, or the path of a file
            or folder that CREATE MODEL accepts. docs/operators.md lists the supported objects.
        inputs: the column names in training order, or a mapping of names to SQL types, if the
            object was fitted without names. Names are not needed for matrices.
        allow_pickle: whether to read pickle files, which can execute code.
        options: `backend`, `strategy` for trees, `device` and `threads`; see `ScorerOptions`.

    Raises:
        UnsupportedModelError: sqlml does not support an estimator or parameter of the model.
        ConfigError: an option, backend, strategy or device is unknown, or `inputs` does not match.
        MissingDependencyError: the backend's library is not installed.
        ArtifactError: the file is missing or damaged.
        UntrustedArtifactError: the file is a pickle, and `allow_pickle` is false.
        BackendError: the trees are too large for the strategy. If the backend cannot run the model
            for another reason, the first batch raises this error.

    >>> import numpy as np
    >>> from sklearn.linear_model import LogisticRegression
    >>> x = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = LogisticRegression().fit(x, ["low", "low", "high", "high"])
    >>> compile(model).predict(x).tolist()
    ['low', 'low', 'high', 'high']
    """
    valid_options = _check_options(options)
    if isinstance(model, Program):
        scorer = Scorer(model, model.features, valid_options)
    else:
        calibration = None
        if isinstance(model, str | os.PathLike):
            file = read_file(os.fspath(model), LOCAL_FILES, allow_pickle=allow_pickle)
            imported = import_file(file, inputs)
            calibration = _load_calibration(file.model, imported.program)
        else:
            imported = import_model(model, inputs)
        fields = imported.program, imported.features, valid_options, imported.gaps
        scorer = Scorer(*fields, calibration)
    trees = valid_options.pop("trees", None)
    if trees is not None:
        program = _keep_trees(scorer.program, trees)
        scorer = Scorer(program, scorer.features, valid_options, scorer._gaps)
    if valid_options:
        choose_way(scorer.program, valid_options)  # Report an unknown name before the first batch.
    return scorer


def _load_calibration(model: object, program: Program) -> Calibration | None:
    """Return the calibration in a file of sqlml, unless the columns of the model are renamed."""
    if not isinstance(model, StoredModel) or program != model.program:
        return None
    stored = model.small_models.get("calibration")
    if stored is None:
        return None
    check_model(stored[0], (*OUTPUTS, *CALIBRATED_OUTPUTS))
    small = load_small_model("calibration", *stored, program, "in the file")
    return small if isinstance(small, Calibration) else None


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    option_names = ScorerOptions.__annotations__
    for name in options:
        if name not in option_names:
            raise ConfigError(f"unknown option {name!r}; options: {', '.join(option_names)}")
    threads = options.get("threads")
    if threads is not None and (type(threads) is not int or threads < 1):
        raise ConfigError(f"threads must be a positive integer, not {threads!r}")
    trees = options.get("trees")
    if trees is not None and (type(trees) is not int or trees < 1):
        raise ConfigError(f"trees must be a positive integer, not {trees!r}")
    return dict(options)


def _keep_trees(program: Program, count: int) -> Program:
    try:
        return keep_stages(program, count)
    except UnsupportedModelError as error:
        raise ConfigError(f"trees={count} does not fit this model: {error}") from None


def _abbreviate(value: Any) -> str:
    """Return the repr of `value`, abbreviated if it is a long list.

    >>> _abbreviate(list(range(30)))
    '[0, 1, 2, 3, 4, 5, 6, 7, ... (30)]'
    """
    if not isinstance(value, list) or len(value) <= 10:
        return repr(value)
    return f"[{', '.join(map(repr, value[:8]))}, ... ({len(value)})]"
