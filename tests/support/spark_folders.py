"""Folders as `model.write().save(path)` of pyspark.ml makes them, written without Spark.

A folder is a dict from paths to the files' bytes; `packed` makes one `bytes` of it.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sqlml.importers.spark_ml.pipeline_stages import PACKAGES
from tests.support.mutations import Rng, of_bytes, of_json, of_tree

Folder = dict[str, bytes]

VECTOR = pa.struct(
    [
        ("type", pa.int8()),
        ("size", pa.int32()),
        ("indices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
    ]
)
MATRIX = pa.struct(
    [
        ("type", pa.int8()),
        ("numRows", pa.int32()),
        ("numCols", pa.int32()),
        ("colPtrs", pa.list_(pa.int32())),
        ("rowIndices", pa.list_(pa.int32())),
        ("values", pa.list_(pa.float64())),
        ("isTransposed", pa.bool_()),
    ]
)
NODE = [
    ("id", pa.int32()),
    ("prediction", pa.float64()),
    ("impurity", pa.float64()),
    ("impurityStats", pa.list_(pa.float64())),
    ("rawCount", pa.int64()),
    ("gain", pa.float64()),
    ("leftChild", pa.int32()),
    ("rightChild", pa.int32()),
    (
        "split",
        pa.struct(
            [
                ("featureIndex", pa.int32()),
                ("leftCategoriesOrThreshold", pa.list_(pa.float64())),
                ("numCategories", pa.int32()),
            ]
        ),
    ),
]
LOGISTIC = [
    ("numClasses", pa.int32()),
    ("numFeatures", pa.int32()),
    ("interceptVector", VECTOR),
    ("coefficientMatrix", MATRIX),
    ("isMultinomial", pa.bool_()),
]


def parquet(rows: Sequence[Mapping[str, Any]], schema: Sequence[tuple[str, Any]]) -> bytes:
    """The rows as a file."""
    made = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), pa.schema(list(schema))), made)
    return made.getvalue()


def stage(
    kind: str,
    params: Mapping[str, Any],
    tables: Mapping[str, bytes] | None = None,
    version: str = "4.1.0",
    **numbers: Any,
) -> Folder:
    """One stage, of whose kind there is one in a pipeline."""
    uid = f"{kind}_1"
    about = {
        "class": f"org.apache.spark.ml.{PACKAGES.get(kind, 'feature')}.{kind}",
        "timestamp": 1,
        "sparkVersion": version,
        "uid": uid,
        "paramMap": dict(params),
        "defaultParamMap": {},
        **numbers,
    }
    parts = {f"{name}/part-00000-x.snappy.parquet": held for name, held in (tables or {}).items()}
    return {"metadata/part-00000": json.dumps(about).encode(), "metadata/_SUCCESS": b"", **parts}


def pipeline(*stages: Folder, version: str = "4.1.0") -> Folder:
    """The stages in one folder."""
    uids = [json.loads(s["metadata/part-00000"])["uid"] for s in stages]
    made = stage("Pipeline", {"stageUids": uids}, version=version)
    about = json.loads(made["metadata/part-00000"])
    about["class"] = "org.apache.spark.ml.PipelineModel"
    made["metadata/part-00000"] = json.dumps(about).encode()
    digits = len(str(len(stages)))
    for i, (uid, files) in enumerate(zip(uids, stages, strict=True)):
        made |= {f"stages/{i:0{digits}d}_{uid}/{name}": held for name, held in files.items()}
    return made


def dense(*values: float) -> dict[str, Any]:
    """A vector."""
    return {"type": 1, "size": None, "indices": None, "values": list(values)}


def indexer(read: str, made: str, *labels: str, invalid: str = "keep") -> Folder:
    table = parquet(
        [{"labelsArray": [list(labels)]}], [("labelsArray", pa.list_(pa.list_(pa.string())))]
    )
    params = {"inputCol": read, "outputCol": made, "handleInvalid": invalid}
    return stage("StringIndexerModel", params, {"data": table})


def one_hot(read: str, made: str, size: int, **params: Any) -> Folder:
    table = parquet([{"categorySizes": [size]}], [("categorySizes", pa.list_(pa.int32()))])
    return stage(
        "OneHotEncoderModel", {"inputCols": [read], "outputCols": [made], **params}, {"data": table}
    )


def assembler(*reads: str, made: str = "features", **params: Any) -> Folder:
    return stage("VectorAssembler", {"inputCols": list(reads), "outputCol": made, **params})


def scaler(kind: str, params: Mapping[str, Any], **vectors: Sequence[float]) -> Folder:
    row = {name: dense(*values) for name, values in vectors.items()}
    table = parquet([row], [(name, VECTOR) for name in row])
    return stage(kind, {"inputCol": "features", "outputCol": "scaled", **params}, {"data": table})


PREDICTION = {
    "predictionCol": "prediction",
    "probabilityCol": "probability",
    "rawPredictionCol": "rawPrediction",
    "featuresCol": "features",
}


def logistic(
    coefficients: Sequence[Sequence[float]], intercepts: Sequence[float], **params: Any
) -> Folder:
    rows, columns = len(coefficients), len(coefficients[0])
    matrix = {
        "type": 1,
        "numRows": rows,
        "numCols": columns,
        "values": [v for row in coefficients for v in row],
        "isTransposed": True,
    }
    row = {
        "numClasses": max(rows, 2),
        "numFeatures": columns,
        "interceptVector": dense(*intercepts),
        "coefficientMatrix": matrix,
        "isMultinomial": rows > 1,
    }
    table = parquet([row], LOGISTIC)
    return stage("LogisticRegressionModel", {**PREDICTION, **params}, {"data": table})


def linear(coefficients: Sequence[float], intercept: float) -> Folder:
    row = {"intercept": intercept, "coefficients": dense(*coefficients), "scale": 1.0}
    schema = [("intercept", pa.float64()), ("coefficients", VECTOR), ("scale", pa.float64())]
    return stage("LinearRegressionModel", PREDICTION, {"data": parquet([row], schema)})


def k_means(*centres: Sequence[float], **params: Any) -> Folder:
    rows = [{"clusterIdx": i, "clusterCenter": dense(*c)} for i, c in enumerate(centres)]
    table = parquet(rows, [("clusterIdx", pa.int32()), ("clusterCenter", VECTOR)])
    return stage("KMeansModel", {**PREDICTION, **params}, {"data": table})


def leaf(value: float = 0.0, *stats: float) -> dict[str, Any]:
    """A leaf with a value, and with what reached it of each class."""
    return {"value": value, "stats": list(stats)}


def below(feature: int, threshold: float, left: Any, right: Any) -> dict[str, Any]:
    """A split of numbers."""
    return {"split": (feature, [threshold], -1), "children": (left, right)}


def among(feature: int, codes: Sequence[int], size: int, left: Any, right: Any) -> dict[str, Any]:
    """A split of `size` categories, of which the `codes` go left."""
    return {"split": (feature, [float(c) for c in codes], size), "children": (left, right)}


def nodes(tree: Any) -> list[dict[str, Any]]:
    """The rows of a tree: a node, what is left of it, what is right of it."""
    rows: list[dict[str, Any]] = []

    def add(node: Any) -> tuple[int, list[float]]:
        number = len(rows)
        rows.append({"id": number, "prediction": node.get("value", 0.0), "impurity": 0.1})
        row = rows[number]
        feature, values, size = node.get("split", (-1, [], -1))
        left = right = -1
        stats = node.get("stats", [])
        if "children" in node:
            (left, stats), (right, _) = (add(child) for child in node["children"])
        row |= {"impurityStats": stats, "rawCount": 1, "gain": 0.1}
        row |= {"leftChild": left, "rightChild": right}
        row["split"] = {
            "featureIndex": feature,
            "leftCategoriesOrThreshold": values,
            "numCategories": size,
        }
        return number, stats

    add(tree)
    return rows


def trees(
    kind: str,
    held: Sequence[Any],
    features: int,
    classes: int | None = None,
    weights: Sequence[float] | None = None,
    names: Sequence[str] = ("_1", "_2", "_3"),
    **params: Any,
) -> Folder:
    """A forest or boosted trees; `names` are those of treesMetadata's columns."""
    numbers = {"numFeatures": features, "numTrees": len(held)}
    numbers |= {} if classes is None else {"numClasses": classes}
    single = "DecisionTreeClassificationModel" if classes and "GBT" not in kind else None
    inner = single or "DecisionTreeRegressionModel"
    about = json.dumps({"class": f"org.apache.spark.ml.{PACKAGES[inner]}.{inner}"})
    rows = [{"treeID": i, "nodeData": row} for i, tree in enumerate(held) for row in nodes(tree)]
    each = weights or [1.0] * len(held)
    told = [dict(zip(names, (i, about, w), strict=True)) for i, w in enumerate(each)]
    types = zip(names, (pa.int32(), pa.string(), pa.float64()), strict=True)
    tables = {
        "data": parquet(rows, [("treeID", pa.int32()), ("nodeData", pa.struct(NODE))]),
        "treesMetadata": parquet(told, list(types)),
    }
    return stage(kind, {**PREDICTION, **params}, tables, **numbers)


def tree(kind: str, held: Any, features: int, classes: int | None = None, **params: Any) -> Folder:
    """A single tree."""
    numbers = {"numFeatures": features} | ({} if classes is None else {"numClasses": classes})
    return stage(kind, {**PREDICTION, **params}, {"data": parquet(nodes(held), NODE)}, **numbers)


def write(files: Folder, path: Path) -> Path:
    """The folder on disk."""
    for name, held in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(held)
    return path


def packed(files: Folder) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, held in files.items():
            archive.writestr(name, held)
    return made.getvalue()


def unpacked(content: bytes) -> Folder:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@lru_cache(maxsize=1)
def folders() -> tuple[bytes, ...]:
    """Small models of all kinds, packed."""
    head = [indexer("c", "code", "x", "y"), one_hot("code", "hot", 3)]
    head.append(assembler("a", "b", "code", "hot", handleInvalid="keep"))
    split = among(2, [0], 3, leaf(1.5, 3.0, 1.0), leaf(-1.0, 0.0, 2.0))
    whole = below(0, 0.5, split, below(1, -1.0, leaf(2.0, 1.0, 0.0), leaf(0.25, 0.0, 0.0)))
    five = [0.5, -1.0, 2.0, 0.25, 1.0]
    std = scaler("StandardScalerModel", {"withMean": True}, std=five, mean=five)
    least = scaler("MinMaxScalerModel", {}, originalMin=five, originalMax=[1.0] * 5)
    lasts = [
        [logistic([five], [0.5], threshold=0.3)],
        [std, logistic([five, five[::-1], five], [0.5, 1.0, 0.0], featuresCol="scaled")],
        [least],
        [linear(five, 1.0)],
        [k_means(five, five[::-1])],
        [tree("DecisionTreeClassificationModel", whole, 5, 2)],
        [trees("RandomForestClassificationModel", [whole, whole], 5, 2, thresholds=[0.2, 0.8])],
        [trees("GBTRegressionModel", [whole, split], 5, weights=[1.0, 0.1])],
    ]
    return tuple(packed(pipeline(*head, *last)) for last in lasts)


def damaged(content: bytes, rng: Rng) -> bytes:
    """One file changed, lost, or put into the place of another."""
    files = unpacked(content)
    names = [n for n in sorted(files) if "part-" in n]
    name = names[int(rng.integers(len(names)))]
    way = rng.random()
    if way < 0.1:
        files[name] = of_bytes(files[name], rng)
    elif way < 0.15:
        del files[name]
    elif way < 0.2:
        files[name] = files[names[int(rng.integers(len(names)))]]
    elif name.endswith(".parquet"):
        files[name] = _other_rows(files[name], rng)
    else:
        files[name] = of_json(files[name], rng)
    return packed(files)


def _other_rows(content: bytes, rng: Rng) -> bytes:
    table = pq.read_table(pa.BufferReader(content))
    rows = of_tree(table.to_pylist(), rng)
    schema = list(zip(table.schema.names, table.schema.types, strict=True))
    try:
        return parquet(rows, schema)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError):
        return of_bytes(content, rng)
