"""`walk`: the nodes of an ONNX graph, one by one, into the IR."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from sqlml.errors import ArtifactError, ProgramError
from sqlml.importers.onnx import estimators, labels, layout, standard, trees
from sqlml.importers.onnx.document import OnnxModel
from sqlml.importers.onnx.items import Call, Const, Item
from sqlml.importers.row_tensors import Uncovered
from sqlml.ir.builder import Builder
from sqlml.limits import MAX_ROW_VALUES

Function = Callable[[Call], Item | tuple[Item, ...]]

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **standard.FUNCTIONS,
        **layout.FUNCTIONS,
        "Split": layout.split,
        "Binarizer": estimators.binarizer,
        "CategoryMapper": labels.category_mapper,
        "FeatureVectorizer": estimators.feature_vectorizer,
        "Imputer": estimators.imputer,
        "LabelEncoder": labels.label_encoder,
        "LinearClassifier": estimators.linear_classifier,
        "LinearRegressor": estimators.linear_regressor,
        "Normalizer": estimators.normalizer,
        "OneHotEncoder": labels.one_hot_encoder,
        "Scaler": estimators.scaler,
        "TreeEnsemble": trees.ensemble_v5,
        "TreeEnsembleClassifier": trees.classifier,
        "TreeEnsembleRegressor": trees.regressor,
        "ZipMap": lambda call: call.item(0),
    }
)
"""Operators that become operators of the IR, by name: the two domains share none."""


def _folded(call: Call) -> Item | None:
    """The result of an operator on constants only; None if numpy cannot fold it."""
    fold = FOLDS.get(call.node.op)
    if fold is None or not call.inputs:
        return None
    values = [item.value for item in call.inputs if isinstance(item, Const)]
    if len(values) < len(call.inputs) or any(v.dtype.kind not in "iufb" for v in values):
        return None
    shape = np.broadcast_shapes(*[v.shape for v in values])
    if math.prod(shape) > MAX_ROW_VALUES:
        raise ArtifactError(f"operator {call.node.op} makes a constant of {shape}")
    return Const(np.asarray(fold(*values)))


FOLDS: Mapping[str, Callable[..., np.ndarray[Any, Any]]] = MappingProxyType(
    {
        "Abs": np.abs,
        "Add": np.add,
        "Exp": np.exp,
        "Log": np.log,
        "Mul": np.multiply,
        "Neg": np.negative,
        "Pow": lambda a, b: np.power(a, b.astype(a.dtype)),
        "Sqrt": np.sqrt,
        "Sub": np.subtract,
        "Sum": lambda *values: functools.reduce(np.add, values),
    }
)
"""Operators whose constants numpy folds; results keep the dtype of the operands."""


def walk(
    model: OnnxModel, builder: Builder, inputs: Mapping[str, Item], names: Sequence[str]
) -> dict[str, Item]:
    """What each name of the graph stands for, with `inputs` for the graph's inputs.

    Raises:
        Uncovered: the graph has an operator, or a use of one, that the IR does not cover.
        ArtifactError: it breaks ONNX's rules.
    """
    known: dict[str, Item] = dict(inputs)
    known.update((name, Const(value)) for name, value in model.constants.items())
    for node in model.nodes:
        convert = FUNCTIONS.get(node.op)
        if convert is None:
            raise Uncovered(f"operator {node.op} is not one that sqlml imports")
        call = Call(
            builder,
            node,
            tuple(known[n] if n else None for n in node.inputs),
            model.opset,
            names,
            model.rows,
        )
        try:
            with np.errstate(all="ignore"):
                made = _folded(call) or convert(call)
        except (ProgramError, Uncovered) as error:
            raise Uncovered(f"operator {node.op}: {error}") from None
        except (ValueError, TypeError, IndexError, KeyError, OverflowError) as error:
            raise ArtifactError(f"operator {node.op} is damaged ({error})") from None
        items = made if isinstance(made, tuple) else (made,)
        if len(node.outputs) > len(items):
            raise Uncovered(f"operator {node.op} has {len(node.outputs)} outputs")
        known.update((n, item) for n, item in zip(node.outputs, items, strict=False) if n)
    return known
