"""`read_object`: a fitted object of pyspark.ml in this process as a SparkModel.

Parameters and small arrays come from the object's own attributes. Tree nodes have no such
attributes: Spark's own `NodeData.build` turns them into the rows that it would save, which arrive
as one JSON text per tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.spark_ml.contents import LEARNED, tree_nodes
from sqlml.importers.spark_ml.stages import (
    FORESTS,
    PACKAGES,
    PIPELINES,
    PYTHON,
    SINGLE_TREES,
    SparkModel,
    Stage,
    not_covered,
)
from sqlml.types import Array

if TYPE_CHECKING:
    import pyarrow as pa


def read_object(model: Any, *, trees: bool = True) -> SparkModel:
    """The stages of a PipelineModel, or of a single fitted stage.

    Args:
        trees: whether the nodes of trees are fetched, too.

    Raises:
        UnsupportedModelError: a stage that is not covered.
    """
    from pyspark import __version__

    return SparkModel(tuple(_stages(model, trees)), f"pyspark {__version__}")


def _stages(model: Any, trees: bool) -> Iterator[Stage]:
    name, uid = f"{type(model).__module__}.{type(model).__qualname__}", str(model.uid)
    if name in PIPELINES:
        for stage in model.stages:
            yield from _stages(stage, trees)
        return
    kind = type(model).__qualname__
    if kind not in PACKAGES or name != f"{PYTHON}{PACKAGES[kind]}.{kind}":
        raise not_covered(name, uid)
    params = {param.name: value for param, value in model.extractParamMap().items()}
    yield Stage(kind, uid, params, _learned(kind, model, trees))


def _learned(kind: str, model: Any, trees: bool) -> dict[str, Any]:
    """`Stage.data` of an object, but for the nodes of trees where `trees` is false."""
    if kind in SINGLE_TREES or kind in FORESTS:
        return _trees(model, trees)
    if kind == "KMeansModel":
        return {"centres": np.array(model.clusterCenters(), np.float64)}
    if kind == "ImputerModel":
        return {"surrogates": model.surrogateDF.first().asDict()}
    return LEARNED[kind](partial(getattr, model)) if kind in LEARNED else {}


def _trees(model: Any, trees: bool) -> dict[str, Any]:
    made: dict[str, Any] = {"numFeatures": int(model.numFeatures)}
    if "Classification" in type(model).__name__:
        made["numClasses"] = int(model.numClasses)
    if not trees:
        return made
    java = getattr(model, "_java_obj", None)
    if java is None or not hasattr(java, "getClass"):
        raise UnsupportedModelError(
            f"the trees of this {type(model).__name__} are in another process (Spark Connect); "
            "save the model with model.write().save(path), and register the folder"
        )
    several = type(model).__name__ in FORESTS
    held = list(java.trees()) if several else [java]
    weights: Array = np.array(model.treeWeights if several else [1.0], np.float64)
    return made | {"nodes": tree_nodes(_table(held), len(held)), "weights": weights}


def _table(trees: list[Any]) -> pa.Table:
    """The nodes of Java's trees as the rows that Spark would save.

    Raises:
        UnsupportedModelError: this version of Spark keeps them otherwise.
    """
    import pyarrow as pa
    from py4j.protocol import Py4JError

    try:
        told = [json.loads(text) for text in _texts(trees)]
    except (Py4JError, TypeError) as error:  # TypeError: a Java class that is not there
        raise UnsupportedModelError(
            f"sqlml cannot read trees from this version of Spark ({type(error).__name__}); save "
            "the model with model.write().save(path), and register the folder"
        ) from error
    split = pa.struct(
        [
            ("featureIndex", pa.int64()),
            ("leftCategoriesOrThreshold", pa.list_(pa.float64())),
            ("numCategories", pa.int64()),
        ]
    )
    schema = pa.schema(
        [
            ("treeID", pa.int64()),
            ("id", pa.int64()),
            ("prediction", pa.float64()),
            ("impurityStats", pa.list_(pa.float64())),
            ("leftChild", pa.int64()),
            ("rightChild", pa.int64()),
            ("split", split),
        ]
    )
    parts = [
        pa.Table.from_pylist([{**node, "treeID": i} for node in nodes], schema)
        for i, nodes in enumerate(told)
    ]
    return pa.concat_tables(parts).combine_chunks()


def _texts(trees: list[Any]) -> Iterator[str]:
    """The rows of each tree as JSON, which Java's Jackson writes of their fields."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    jvm = context._jvm
    rows = getattr(
        getattr(jvm.org.apache.spark.ml.tree.DecisionTreeModelReadWrite, "NodeData$"), "MODULE$"
    )
    jackson = jvm.com.fasterxml.jackson
    writer = jackson.databind.ObjectMapper()
    writer.registerModule(jackson.module.scala.DefaultScalaModule())
    shown = getattr(jackson.annotation, "JsonAutoDetect$Visibility")
    writer.setVisibility(jackson.annotation.PropertyAccessor.GETTER, shown.NONE)
    writer.setVisibility(jackson.annotation.PropertyAccessor.FIELD, shown.ANY)
    for tree in trees:
        yield str(writer.writeValueAsString(rows.build(tree.rootNode(), 0)._1()))
