"""Read a fitted pyspark.ml object of this process as a SparkModel.

Parameters and small arrays are attributes of the object. Tree nodes are not attributes: Spark's
internal `NodeData.build` converts tree nodes to the rows that Spark would save, and the JVM returns
the rows of each tree as a JSON string.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.spark_ml import pipeline_stages
from sqlml.importers.spark_ml.contents import LEARNED, read_tree_nodes
from sqlml.importers.spark_ml.pipeline_stages import SparkModel, Stage, make_unsupported_error
from sqlml.types import Array

if TYPE_CHECKING:
    import pyarrow as pa


def read_object(model: Any, *, trees: bool = True) -> SparkModel:
    """Read a PipelineModel or a fitted stage; without `trees`, leave out tree nodes."""
    from pyspark import __version__

    return SparkModel(tuple(_read_stages(model, trees)), f"pyspark {__version__}")


def _read_stages(model: Any, with_trees: bool) -> Iterator[Stage]:
    class_path, uid = f"{type(model).__module__}.{type(model).__qualname__}", str(model.uid)
    if class_path in pipeline_stages.PIPELINES:
        for stage in model.stages:
            yield from _read_stages(stage, with_trees)
        return
    class_name = type(model).__qualname__
    package = pipeline_stages.PACKAGES.get(class_name)
    if package is None or class_path != f"{pipeline_stages.PYTHON}{package}.{class_name}":
        raise make_unsupported_error(class_path, uid)
    params = {param.name: value for param, value in model.extractParamMap().items()}
    yield Stage(class_name, uid, params, _read_learned(class_name, model, with_trees))


def _read_learned(class_name: str, model: Any, with_trees: bool) -> dict[str, Any]:
    if class_name in pipeline_stages.SINGLE_TREES or class_name in pipeline_stages.FORESTS:
        return _read_trees(model, with_trees)
    if class_name == "KMeansModel":
        return {"centers": np.array(model.clusterCenters(), np.float64)}
    if class_name == "ImputerModel":
        return {"surrogates": model.surrogateDF.first().asDict()}
    return LEARNED[class_name](partial(getattr, model)) if class_name in LEARNED else {}


def _read_trees(model: Any, with_trees: bool) -> dict[str, Any]:
    learned: dict[str, Any] = {"numFeatures": int(model.numFeatures)}
    if "Classification" in type(model).__name__:
        learned["numClasses"] = int(model.numClasses)
    if not with_trees:
        return learned
    java = getattr(model, "_java_obj", None)
    if java is None or not hasattr(java, "getClass"):
        raise UnsupportedModelError(
            f"the trees of this {type(model).__name__} are in another process (Spark Connect); "
            "save the model with model.write().save(path), and register the folder"
        )
    is_forest = type(model).__name__ in pipeline_stages.FORESTS
    java_trees = list(java.trees()) if is_forest else [java]
    weights: Array = np.array(model.treeWeights if is_forest else [1.0], np.float64)
    nodes = read_tree_nodes(_fetch_nodes(java_trees), len(java_trees))
    return {**learned, "nodes": nodes, "weights": weights}


def _fetch_nodes(trees: list[Any]) -> pa.Table:
    """Fetch the nodes of the Java objects `trees` as the table that Spark would save."""
    import pyarrow as pa
    from py4j.protocol import Py4JError

    try:
        nodes_by_tree = list(map(json.loads, _serialize_trees(trees)))
    except (Py4JError, TypeError) as error:  # TypeError if a Java class is missing
        raise UnsupportedModelError(
            f"sqlml cannot read trees from this version of Spark ({type(error).__name__}); save "
            "the model with model.write().save(path), and register the folder"
        ) from error
    int_type, float_type, list_type = pa.int64(), pa.float64(), pa.list_(pa.float64())
    split = dict.fromkeys(("featureIndex", "numCategories"), int_type)
    split["leftCategoriesOrThreshold"] = list_type
    fields = dict.fromkeys(("treeID", "id", "leftChild", "rightChild"), int_type)
    fields |= {"prediction": float_type, "impurityStats": list_type, "split": pa.struct(split)}
    schema = pa.schema(fields)
    tables = [
        pa.Table.from_pylist([{**node, "treeID": i} for node in nodes], schema)
        for i, nodes in enumerate(nodes_by_tree)
    ]
    return pa.concat_tables(tables).combine_chunks()


def _serialize_trees(trees: list[Any]) -> Iterator[str]:
    """Yield the nodes of each tree as JSON, serialized by Jackson on the JVM."""
    from pyspark import SparkContext

    context: Any = SparkContext._active_spark_context
    jvm = context._jvm
    companion_class = getattr(jvm.org.apache.spark.ml.tree.DecisionTreeModelReadWrite, "NodeData$")
    companion = getattr(companion_class, "MODULE$")
    jackson = jvm.com.fasterxml.jackson
    writer = jackson.databind.ObjectMapper()
    writer.registerModule(jackson.module.scala.DefaultScalaModule())
    visibility = getattr(jackson.annotation, "JsonAutoDetect$Visibility")
    writer.setVisibility(jackson.annotation.PropertyAccessor.GETTER, visibility.NONE)
    writer.setVisibility(jackson.annotation.PropertyAccessor.FIELD, visibility.ANY)
    for tree in trees:
        yield str(writer.writeValueAsString(companion.build(tree.rootNode(), 0)._1()))
