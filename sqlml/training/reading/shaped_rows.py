"""Rows as estimators take them, and the model as a whole, from what was read and fitted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sqlml.catalog.model import TrainingFacts
from sqlml.dialects.duckdb import DUCKDB
from sqlml.errors import ArtifactError, ConfigError
from sqlml.host import RowHost
from sqlml.training.features.feature_pipeline import FeatureGroups, feature_transformer
from sqlml.training.options.request import Request
from sqlml.training.options.splits import checked_split
from sqlml.training.reading.rows import Side, TrainingRows
from sqlml.training.storage.column_statistics import Classes, class_name, class_named
from sqlml.training.storage.row_store import Blocks, Part, StoredRows
from sqlml.types import Array, fold


def whole_model(transformer: Any, estimator: Any, classes: Classes | None) -> Any:
    """A fitted transformer and a fitted estimator as one, which says the classes' own names.

    Args:
        classes: of the label, of which the estimator knows the numbers.
    """
    from sklearn.base import clone
    from sklearn.pipeline import Pipeline

    from sqlml.training.estimators.encoded_target import EncodedTargetClassifier

    model = Pipeline([("features", transformer), ("model", estimator)])
    if classes is None or classes.is_numbered():
        return model
    made = EncodedTargetClassifier(clone(model))
    values = classes.values()
    made.classes_ = np.array(values, object if isinstance(values[0], str) else None)
    made.classifier_ = model
    return made


def held_out_part(rows: TrainingRows, groups: FeatureGroups, request: Request) -> Part:
    """The rows held out, with all that the query has."""
    side = rows.held_out
    assert side is not None
    names = [feature.name for feature in rows.features]
    return part_of(side, frame_of(rows, side, names, groups.texts), request, rows)


def part_of(
    side: Side, X: Any, request: Request, rows: TrainingRows, weighs_classes: bool = False
) -> Part:
    """A side as an estimator takes it."""
    weight = side.weight
    if weighs_classes and request.class_weights is not None and rows.classes is not None:
        per_class = class_weights(request, rows)
        own = per_class[side.label]
        weight = own if weight is None else weight * own
    if weighs_classes and weight is not None and not weight.any():
        raise ConfigError("all rows to train on have a weight of 0")
    return Part(X, side.label, weight, side.group)


def class_weights(request: Request, rows: TrainingRows) -> Any:
    """(k,) the weights of the classes.

    Raises:
        ConfigError: a weight is given to a class that there is not.
    """
    values = [] if rows.classes is None else rows.classes.values()
    if request.class_weights == "balanced" or request.class_weights is None:
        counts = np.bincount(np.asarray(rows.fitted.label), minlength=len(values))
        return counts.sum() / (len(values) * counts)
    weights = {}
    for name, weight in dict(request.class_weights).items():  # type: ignore[arg-type]
        value = class_named(name, values)
        if value is None:
            known = ", ".join(map(class_name, values[:20]))
            raise ConfigError(f"option class_weights: unknown class {name!r}; classes: {known}")
        weights[value] = weight
    return np.array([weights.get(value, 1.0) for value in values])


def matrix_of(rows: TrainingRows, side: Side, groups: FeatureGroups) -> Any:
    """(n, k) the features in the order of the groups; no copy where all are there."""
    order = [f.name for f in rows.features]
    places = [order.index(name) for name in groups.names]
    held: Any = side.features
    if places == list(range(len(order))):
        return held
    if isinstance(held, StoredRows):
        return replace(held, columns=tuple(places))
    return held[:, places]


def frame_of(
    rows: TrainingRows,
    side: Side,
    names: Collection[str],
    texts: Collection[str] = (),
    part: slice = slice(None),
) -> Any:
    """A pandas frame of some features, categories as texts, NaN for NULL, and "" for one of
    `texts`."""
    import pandas as pd

    order = [f.name for f in rows.features]
    held: Any = side.features
    if isinstance(held, StoredRows):
        held = held.array() if part == slice(None) else held.first
    matrix = isinstance(held, np.ndarray)
    columns = {}
    for name in (name for name in rows.order if name in names):
        values = held[part, order.index(name)] if matrix else held[name][part]
        if name in rows.names:
            codes = np.where(np.isnan(values), -1, values).astype(int) if matrix else values
            missing = "" if name in texts else np.nan
            known = np.array([*rows.names[name], missing], object)
            values = pd.Series(known[codes], dtype=object)
        columns[name] = values
    return pd.DataFrame(columns, copy=False)


# `encoded_blocks`: features as scikit-learn's estimators take them, scaled and one-hot, in
# blocks.
#
# The transformer is the one of `feature_pipeline.py`, fitted without having all rows in memory:
# means and deviations are added up block by block, and the categories are known.


_MOST_DENSE = 1000
"""Columns up to which rows are dense: descent learns an intercept 100 times slower from sparse
rows."""


@dataclass(frozen=True, eq=False)
class EncodedBlocks(Blocks):
    """Rows of a file as an estimator takes them: float64, dense or sparse.

    source: numbers, then the numbers of categories. transformer: fitted to them. dense: whether
    rows with categories are dense all the same.
    """

    source: StoredRows
    transformer: Any
    groups: FeatureGroups
    dense: bool

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.source), self.rows(0, 1).shape[1]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def block_rows(self) -> int:
        """Rows of a block of the source, or fewer where encoding makes many columns."""
        wide = max(self.rows(0, 1).shape[1] // self.source.shape[1], 1) if self.dense else 1
        return max(self.source.block_rows // wide, 1)

    def rows(self, start: int, stop: int) -> Any:
        """The encoded rows from one place to another."""
        return self.stretches([(start, stop)])

    def stretches(self, places: Sequence[tuple[int, int]]) -> Any:
        """The encoded rows of several stretches: the first row of each, and the one after it."""
        block = np.concatenate([self.source.rows(start, stop) for start, stop in places])
        numbers, few = self.groups.numbers, self.groups.few
        parts = []
        if numbers:
            scaler = self.transformer.named_transformers_["number"]
            parts.append(scaler.transform(_frame(block[:, : len(numbers)], numbers)))
        if not few:
            return parts[0]
        from scipy import sparse

        encoder = self.transformer.named_transformers_["category"]
        parts.append(_one_hot(block[:, len(numbers) :], encoder.categories_))
        made = sparse.hstack([sparse.csr_matrix(part) for part in parts], format="csr")
        return made.toarray() if self.dense else made


def encoded_blocks(
    source: StoredRows, groups: FeatureGroups, names: Any, order: Sequence[str], request: Request
) -> EncodedBlocks:
    """The rows that a model is fitted to, and the transformer that is fitted to them.

    Args:
        source: the features in the order of the groups. names: of the categories of each column.
        order: of the columns in the query.
    """
    present, means = _moments(source)
    transformer = feature_transformer(groups, names, request)
    gaps = present < len(source)
    transformer.fit(_example(groups, names, order, gaps))
    if groups.numbers:
        step = transformer.named_transformers_["number"]
        imputer = step.steps[0][1] if request.standardize else step
        imputer.statistics_ = means[: len(groups.numbers)]
        if request.standardize:
            step.steps[1] = (step.steps[1][0], _scaler(source, groups, imputer))
    made = EncodedBlocks(source, transformer, groups, dense=False)
    dense = request.task == "project" or made.shape[1] <= _MOST_DENSE
    return replace(made, dense=dense)


def _moments(source: StoredRows) -> tuple[Array, Array]:
    """(k,) how many values there are in each column, and their means, 0 without any."""
    present, total = np.zeros(source.shape[1]), np.zeros(source.shape[1])
    for block in source.blocks():
        missing = np.isnan(block)
        present += len(block) - missing.sum(axis=0)
        total += np.where(missing, 0.0, block).sum(axis=0)
    return present, total / np.maximum(present, 1)


def _scaler(source: StoredRows, groups: FeatureGroups, imputer: Any) -> Any:
    """A StandardScaler of what the imputer makes of the numbers."""
    from sklearn.preprocessing import StandardScaler

    made = StandardScaler()
    for block in source.blocks():
        frame = _frame(block[:, : len(groups.numbers)], groups.numbers)
        made.partial_fit(imputer.transform(frame))
    return made


def _example(groups: FeatureGroups, names: Any, order: Sequence[str], gaps: Array) -> Any:
    """A frame with every category, and a missing value in each column that has some."""
    import pandas as pd

    known = [[*names[n], *([np.nan] if gaps[len(groups.numbers) + k] else [])]
             for k, n in enumerate(groups.few)]  # fmt: skip
    rows = max([2, *map(len, known)])
    columns: dict[str, Any] = {}
    for k, name in enumerate(groups.numbers):
        columns[name] = np.zeros(rows)
        columns[name][:1] = np.nan if gaps[k] else 0.0
    for name, values in zip(groups.few, known, strict=True):
        columns[name] = pd.Series([values[n % len(values)] for n in range(rows)], dtype=object)
    return pd.DataFrame({name: columns[name] for name in order if name in columns})


def _frame(block: Array, names: Sequence[str]) -> Any:
    import pandas as pd

    return pd.DataFrame(block, columns=list(names), copy=False)


def _one_hot(codes: Array, categories: Sequence[Array]) -> Any:
    """(n, k) sparse: what OneHotEncoder makes of the categories with these numbers.

    Args:
        codes: (n, c) places of categories in their order, NaN for NULL, which is the last category
            of a column that has it.
    """
    from scipy import sparse

    first = np.cumsum([0, *(len(c) for c in categories)])
    last = first[1:] - 1
    missing = np.isnan(codes)
    places = np.where(missing, last, np.where(missing, 0, codes) + first[:-1])
    has_null = np.array([c[-1] != c[-1] for c in categories])
    kept = ~missing | has_null
    ends = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    ones = np.ones(int(ends[-1]))
    shape = (len(codes), int(first[-1]))
    return sparse.csr_matrix((ones, places[kept].astype(np.int32), ends), shape)


# `held_out_query`: the rows that a training held out, as a query over the current rows.


def held_out_query(host: RowHost, facts: TrainingFacts) -> str | None:
    """Return the query in brackets; None if all rows were trained on.

    A split by time trains on as many rows as it did then.

    Raises:
        ArtifactError: the stored split is damaged.
        ParseError: the stored query is none.
        duckdb.Error: the engine cannot bind it any more.
    """
    columns = dict(host.describe(facts.query))
    try:
        split = checked_split(**facts.split)
    except (AttributeError, TypeError, ConfigError) as error:
        raise ArtifactError(
            f"the catalog's split of the training is damaged ({error}); train the model again"
        ) from None
    label = facts.label
    names = {fold(name): name for name in columns}
    label = None if label is None else names.get(fold(label))
    group = facts.options.get("group")
    keys = split.keys(columns, label, None if group is None else str(group), facts.seed)
    if not keys or not facts.held_out:
        return None
    known = "true" if label is None else f"{DUCKDB.quote_name(label)} IS NOT NULL"
    rows = f"(SELECT * FROM (\n{facts.query}\n) AS sqlml_query WHERE {known}) AS sqlml_rows"
    last = None
    if split.method == "seq":
        (key,) = keys
        last = (
            f"(SELECT {key} FROM {rows} ORDER BY {key} NULLS LAST "
            f"LIMIT 1 OFFSET {max(facts.rows, 1) - 1})"
        )
    return f"({split.side_sql(rows, keys, last, held_out=True)})"
