"""Convert rows to the input of estimators: frames, matrices, encoded blocks and weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from sqlml.catalog.model import TrainingFacts
from sqlml.catalog.small_models import FoldFacts
from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ArtifactError, ConfigError
from sqlml.host import RowHost
from sqlml.training.column_statistics import Classes, class_name, find_class
from sqlml.training.options.folds import FoldMethod, FoldRule
from sqlml.training.options.request import Request
from sqlml.training.options.splits import parse_split
from sqlml.training.row_store import BlockMatrix, EstimatorRows, StoredRows
from sqlml.training.rows.feature_pipeline import FeatureGroups, make_transformer
from sqlml.training.rows.read_rows import SplitSide, TrainingRows
from sqlml.types import Array, fold


def assemble_model(transformer: Any, estimator: Any, classes: Classes | None) -> Any:
    """Combine a transformer and an estimator of class codes into a model of class names."""
    from sklearn.base import clone
    from sklearn.pipeline import Pipeline

    from sqlml.training.estimators.encoded_target import EncodedTargetClassifier

    model = Pipeline([("features", transformer), ("model", estimator)])
    if classes is None or classes.is_numbered():
        return model
    classifier = EncodedTargetClassifier(clone(model))
    values = classes.values()
    classifier.classes_ = np.array(values, object if isinstance(values[0], str) else None)
    classifier.classifier_ = model
    return classifier


def read_held_out(rows: TrainingRows, groups: FeatureGroups, request: Request) -> EstimatorRows:
    side = rows.held_out
    assert side is not None
    names = [feature.name for feature in rows.features]
    return make_part(side, build_frame(rows, side, names, groups.texts), request, rows)


def make_part(
    side: SplitSide, X: Any, request: Request, rows: TrainingRows, weighs_classes: bool = False
) -> EstimatorRows:
    """Add the labels, weights and groups of `side` to `X`; `weighs_classes` adds class weights."""
    weight = side.weight
    if weighs_classes and request.class_weights is not None and rows.classes is not None:
        row_weights = compute_class_weights(request, rows)[side.label]
        weight = row_weights if weight is None else weight * row_weights
    if weighs_classes and weight is not None and not weight.any():
        raise ConfigError("all rows to train on have a weight of 0")
    return EstimatorRows(X, side.label, weight, side.group)


def compute_class_weights(request: Request, rows: TrainingRows) -> Any:
    values = [] if rows.classes is None else rows.classes.values()
    if request.class_weights == "balanced" or request.class_weights is None:
        counts = np.bincount(np.asarray(rows.fitted.label), minlength=len(values))
        return counts.sum() / (len(values) * counts)
    weights = {}
    for name, weight in dict(request.class_weights).items():  # type: ignore[arg-type]
        value = find_class(name, values)
        if value is None:
            class_names = ", ".join(map(class_name, values[:20]))
            message = f"option class_weights: unknown class {name!r}; classes: {class_names}"
            raise ConfigError(message)
        weights[value] = weight
    return np.array([weights.get(value, 1.0) for value in values])


def select_matrix(rows: TrainingRows, side: SplitSide, groups: FeatureGroups) -> Any:
    """Return the (n, k) features of `side` in the order of `groups.names`."""
    order = [f.name for f in rows.features]
    indices = [order.index(name) for name in groups.names]
    features: Any = side.features
    if indices == list(range(len(order))):
        return features  # This avoids a copy.
    if isinstance(features, StoredRows):
        return replace(features, columns=tuple(indices))
    return features[:, indices]


def build_frame(
    rows: TrainingRows,
    side: SplitSide,
    names: Collection[str],
    text_columns: Collection[str] = (),
    row_slice: slice = slice(None),
) -> Any:
    """Return a pandas frame of the features `names`, in the order of the query.

    NULL becomes an empty string in `text_columns`, and NaN in all other columns.
    """
    import pandas as pd

    order = [f.name for f in rows.features]
    features: Any = side.features
    if isinstance(features, StoredRows):
        features = features.array() if row_slice == slice(None) else features.first_block
    is_matrix = isinstance(features, np.ndarray)
    columns = {}
    for name in (name for name in rows.order if name in names):
        values = features[row_slice, order.index(name)] if is_matrix else features[name][row_slice]
        if name in rows.names:
            codes = np.where(np.isnan(values), -1, values).astype(int) if is_matrix else values
            missing_name = "" if name in text_columns else np.nan
            # The code of a missing category, -1, selects the last name.
            names_by_code = np.array([*rows.names[name], missing_name], object)
            values = pd.Series(names_by_code[codes], dtype=object)
        columns[name] = values
    return pd.DataFrame(columns, copy=False)


_MAX_DENSE_COLUMNS = 1000
"""Maximum columns of dense encoded rows. Gradient descent is far slower on sparse rows."""


@dataclass(frozen=True, eq=False)
class EncodedBlocks(BlockMatrix):
    """Rows of a file, encoded for scikit-learn: scaled numbers and one-hot columns, as float64.

    source: numbers, then category codes. transformer: a fitted transformer as in
    `feature_pipeline.py`. dense: whether rows with categories are dense instead of sparse.
    """

    source: StoredRows
    transformer: Any
    groups: FeatureGroups
    dense: bool

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.source), self.rows(0, 1).shape[1]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def block_rows(self) -> int:
        """The number of rows in a block, which is smaller if encoding adds many columns."""
        expansion = max(self.rows(0, 1).shape[1] // self.source.shape[1], 1) if self.dense else 1
        return max(self.source.block_rows // expansion, 1)

    def rows(self, start: int, stop: int) -> Any:
        return self.stretches([(start, stop)])

    def stretches(self, stretches: Sequence[tuple[int, int]]) -> Any:
        """Return the encoded rows in several ranges, each a pair (start, stop)."""
        block = np.concatenate([self.source.rows(start, stop) for start, stop in stretches])
        numeric, categorical = self.groups.numbers, self.groups.categories
        encoded = []
        if numeric:
            scaler = self.transformer.named_transformers_["number"]
            encoded.append(scaler.transform(_to_frame(block[:, : len(numeric)], numeric)))
        if not categorical:
            return encoded[0]
        from scipy import sparse

        encoder = self.transformer.named_transformers_["category"]
        encoded.append(_encode_one_hot(block[:, len(numeric) :], encoder.categories_))
        matrix = sparse.hstack([sparse.csr_matrix(columns) for columns in encoded], format="csr")
        return matrix.toarray() if self.dense else matrix


def encode_blocks(
    source: StoredRows, groups: FeatureGroups, names: Any, order: Sequence[str], request: Request
) -> EncodedBlocks:
    """Fit a transformer block by block, and return the encoded rows.

    The features of `source` are in the order of the groups. `order` is their order in the query.
    """
    value_counts, means = _count_and_average(source)
    transformer = make_transformer(groups, names, request)
    transformer.fit(_build_example(groups, names, order, value_counts < len(source)))
    if groups.numbers:
        number_step = transformer.named_transformers_["number"]
        imputer = number_step.steps[0][1] if request.standardize else number_step
        imputer.statistics_ = means[: len(groups.numbers)]
        if request.standardize:
            number_step.steps[1] = (number_step.steps[1][0], _fit_scaler(source, groups, imputer))
    blocks = EncodedBlocks(source, transformer, groups, dense=False)
    dense = request.task == "project" or blocks.shape[1] <= _MAX_DENSE_COLUMNS
    return replace(blocks, dense=dense)


def _count_and_average(source: StoredRows) -> tuple[Array, Array]:
    value_counts, totals = np.zeros(source.shape[1]), np.zeros(source.shape[1])
    for block in source.blocks():
        is_missing = np.isnan(block)
        value_counts += len(block) - is_missing.sum(axis=0)
        totals += np.where(is_missing, 0.0, block).sum(axis=0)
    return value_counts, totals / np.maximum(value_counts, 1)


def _fit_scaler(source: StoredRows, groups: FeatureGroups, imputer: Any) -> Any:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler()
    for block in source.blocks():
        frame = _to_frame(block[:, : len(groups.numbers)], groups.numbers)
        scaler.partial_fit(imputer.transform(frame))
    return scaler


def _build_example(
    groups: FeatureGroups, category_names: Any, order: Sequence[str], has_missing: Array
) -> Any:
    """Return a frame with every category, and a NaN in each column that has missing values."""
    import pandas as pd

    number_count = len(groups.numbers)
    categories = [
        [*category_names[name], *([np.nan] if is_incomplete else [])]
        for name, is_incomplete in zip(groups.categories, has_missing[number_count:], strict=True)
    ]
    row_count = max([2, *map(len, categories)])
    columns: dict[str, Any] = {}
    for name, is_incomplete in zip(groups.numbers, has_missing, strict=False):
        columns[name] = np.zeros(row_count)
        columns[name][0] = np.nan if is_incomplete else 0.0
    for name, values in zip(groups.categories, categories, strict=True):
        columns[name] = pd.Series(np.resize(np.array(values, object), row_count), dtype=object)
    return pd.DataFrame({name: columns[name] for name in order if name in columns})


def _to_frame(block: Array, names: Sequence[str]) -> Any:
    import pandas as pd

    return pd.DataFrame(block, columns=list(names), copy=False)


def _encode_one_hot(codes: Array, categories: Sequence[Array]) -> Any:
    """Return the (n, k) sparse matrix of OneHotEncoder for category codes (n, c), NaN for NULL."""
    from scipy import sparse

    starts = np.cumsum([0, *(len(c) for c in categories)])
    last_columns = starts[1:] - 1
    is_missing = np.isnan(codes)
    columns = np.where(is_missing, last_columns, np.where(is_missing, 0, codes) + starts[:-1])
    is_encoded = ~is_missing | np.array([c[-1] != c[-1] for c in categories])
    row_ends = np.concatenate([[0], np.cumsum(is_encoded.sum(axis=1))])
    ones = np.ones(int(row_ends[-1]))
    shape = (len(codes), int(starts[-1]))
    return sparse.csr_matrix((ones, columns[is_encoded].astype(np.int32), row_ends), shape)


def build_held_out_query(host: RowHost, facts: TrainingFacts) -> str | None:
    """Return a query in parentheses for the rows that a repeated training would hold out today.

    Return None if the training held out no rows, or if each partition held out its last rows. A
    sequential split trains on as many rows as in the original training. If the engine can no longer
    bind the query, duckdb.Error is raised.
    """
    last_of_each = bool(facts.partitions) and facts.split.get("method") == "seq"
    if not facts.held_out or last_of_each:
        return None
    return _select_side(dict(host.describe(facts.query)), facts, held_out=True)


def build_fold_query(host: RowHost, facts: TrainingFacts, folds: FoldFacts) -> str:
    """Return a query in parentheses for the training rows of today, with their `fold`.

    The fold of a row is NULL if it belongs to the first block of times, or if its group or time is
    NULL. Raises ConfigError if the query has a column called fold.
    """
    columns = dict(host.describe(facts.query))
    names = {fold(name): name for name in columns}
    if "fold" in names:
        raise ConfigError(f"the training query has a column {names['fold']!r}: rename it there")
    column = names.get(fold(folds.column)) if folds.column else None
    if folds.column and column is None:
        raise ConfigError(f"the training query no longer has the column {folds.column!r}")
    method = next(m for m in get_args(FoldMethod) if m == folds.method)
    rule = FoldRule(len(folds.folds), method, column)
    label = None if facts.label is None else names.get(fold(facts.label))
    keys = rule.build_keys(columns, label, folds.seed)
    rows_sql = f"{_select_side(columns, facts, held_out=False)} AS sqlml_fitted"
    return f"({rule.select_fold(rows_sql, keys, folds.bounds, columns.get(column or '', ''))})"


def _select_side(columns: Mapping[str, str], facts: TrainingFacts, *, held_out: bool) -> str:
    try:
        split = parse_split(**facts.split)
    except (AttributeError, TypeError, ConfigError) as error:
        message = f"the catalog's split of the training is damaged ({error}); train the model again"
        raise ArtifactError(message) from None
    names = {fold(name): name for name in columns}
    label = None if facts.label is None else names.get(fold(facts.label))
    group = facts.options.get("group")
    group_name = None if group is None else str(group)
    keys = split.build_keys(columns, label, group_name, facts.seed) if facts.held_out else ()
    condition = "true" if label is None else f"{DUCKDB.quote_name(label)} IS NOT NULL"
    rows_sql = f"(SELECT * FROM (\n{facts.query}\n) AS sqlml_query WHERE {condition}) AS sqlml_rows"
    last_trained = None
    if split.method == "seq" and keys:
        (key,) = keys
        clauses = f"ORDER BY {key} NULLS LAST LIMIT 1 OFFSET {max(facts.rows, 1) - 1}"
        last_trained = f"(SELECT {key} FROM {rows_sql} {clauses})"
    return f"({split.select_side(rows_sql, keys, last_trained, held_out=held_out)})"
