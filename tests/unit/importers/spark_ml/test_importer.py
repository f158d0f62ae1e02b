"""Folders that pyspark.ml saved, read without Spark: each rule with numbers worked out by hand.

`tests/spark/test_ml_import.py` holds the same against Spark itself.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sqlml
from sqlml import errors
from sqlml.importers.registry import Imported, import_model
from sqlml.importers.spark_ml.folder import read_folder, read_tables
from sqlml.scorer.scorer import Scorer
from tests.e2e import child
from tests.support import spark_folders as saved
from tests.support.spark_folders import Folder

NAN, INF = math.nan, math.inf


def imported(*stages: Folder, inputs: Sequence[str] | None = None) -> Imported:
    folder = stages[0] if len(stages) == 1 else saved.pipeline(*stages)
    return import_model(read_folder(folder, read_tables), inputs)


def scorer(*stages: Folder, inputs: Sequence[str] | None = None) -> Scorer:
    made = imported(*stages, inputs=inputs)
    return Scorer(made.program, made.features, {})


def changed(folder: Folder, change: Callable[[Any], None], at: str = "") -> Folder:
    """The folder with other metadata in the stage at `at`."""
    name = f"{at}metadata/part-00000"
    about = json.loads(folder[name])
    change(about)
    return {**folder, name: json.dumps(about).encode()}


# -- columns


def test_the_inputs_are_the_columns_that_no_stage_makes_and_the_outputs_need() -> None:
    made = imported(
        saved.indexer("answer", "label", "no", "yes"),
        saved.indexer("city", "code", "Ulm", "Bonn"),
        saved.assembler("b", "code", "a"),
        saved.linear([1.0, 10.0, 100.0], 0.5),
    )
    assert [(f.name, f.kind) for f in made.features] == [
        ("city", "string"),
        ("b", "number"),
        ("a", "number"),
    ]
    assert made.source == "pyspark.ml folder" and made.library == "pyspark 4.1.0"
    frame = pd.DataFrame({"city": ["Bonn", None, "Rom"], "b": 1.0, "a": 2.0})
    assert Scorer(made.program, made.features, {}).predict(frame).tolist() == [
        211.5,
        221.5,
        221.5,
    ]


def test_a_model_alone_reads_a_vector_whose_numbers_are_named() -> None:
    made = imported(saved.linear([1.0, 2.0], 0.5))
    assert not made.is_named and len(made.features) == 2
    model = scorer(saved.linear([1.0, 2.0], 0.5), inputs=["a", "b"])
    assert model.predict(pd.DataFrame({"a": [1.0], "b": [3.0]})).tolist() == [7.5]
    with pytest.raises(errors.UnsupportedModelError, match="reads the vector 'features' alongside"):
        imported(
            saved.assembler("features", "a", made="both"),
            saved.scaler("MaxAbsScalerModel", {}, maxAbs=[1.0]),
            saved.assembler("scaled", "both", made="whole"),
            {**saved.linear([1.0] * 3, 0.0)},
            changed(
                saved.linear([1.0] * 3, 0.0), lambda a: a["paramMap"].update(featuresCol="whole")
            ),
        )
    with pytest.raises(errors.UnsupportedModelError, match="of 3 numbers, and 'features' has 2"):
        imported(saved.assembler("a", "b"), saved.linear([1.0] * 3, 0.0))


def test_null_and_infinity_in_an_assembler() -> None:
    strict = scorer(saved.assembler("a", "b"), saved.linear([1.0, 1.0], 0.0))
    for value, says in ((None, "'b' has NULL or NaN"), (INF, "'b' has infinity")):
        with pytest.raises(errors.MissingValueError, match=says):
            strict.predict(pd.DataFrame({"a": [1.0], "b": [value]}, dtype=float))
    keeping = scorer(saved.assembler("a", "b", handleInvalid="keep"), saved.linear([1.0, 1.0], 0.0))
    assert np.isnan(keeping.predict(pd.DataFrame({"a": [1.0], "b": [NAN]}))).all()


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, [[1, 0], [0, 1], [0, 0]]),
        ({"dropLast": False}, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        ({"handleInvalid": "keep"}, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (
            {"handleInvalid": "keep", "dropLast": False},
            [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]],
        ),
    ],
)
def test_the_last_category_is_dropped_or_that_of_other_values(
    params: dict[str, Any], expected: list[list[float]]
) -> None:
    frame = pd.DataFrame({"city": ["Ulm", "Bonn", "Rom"]})
    model = scorer(saved.indexer("city", "code", "Ulm", "Bonn"), saved.one_hot("code", "hot", 3))
    assert model.transform(frame).tolist() == [[1, 0], [0, 1], [0, 0]]
    model = scorer(
        saved.indexer("city", "code", "Ulm", "Bonn"), saved.one_hot("code", "hot", 3, **params)
    )
    assert model.transform(frame).tolist() == expected


def test_a_scaler_makes_zero_of_what_did_not_vary() -> None:
    head = saved.assembler("a", "b", handleInvalid="keep")
    frame = pd.DataFrame({"a": [7.0, NAN], "b": [7.0, 1.0]})
    vectors = {"std": [2.0, 0.0], "mean": [1.0, 5.0]}
    standard = saved.scaler("StandardScalerModel", {"withMean": True}, **vectors)
    np.testing.assert_equal(scorer(head, standard).transform(frame), [[3, 0], [NAN, 0]])
    limits = {"originalMin": [3.0, 4.0], "originalMax": [11.0, 4.0]}
    least = saved.scaler("MinMaxScalerModel", {"min": -1.0, "max": 5.0}, **limits)
    np.testing.assert_equal(scorer(head, least).transform(frame), [[2, 2], [NAN, 2]])
    most = saved.scaler("MaxAbsScalerModel", {}, maxAbs=[14.0, 0.0])
    np.testing.assert_equal(scorer(head, most).transform(frame), [[0.5, 7], [NAN, 1]])


# -- predictors


def test_the_margin_is_held_against_the_logit_of_the_threshold() -> None:
    def labels(**params: Any) -> list[float]:
        model = scorer(saved.assembler("a"), saved.logistic([[1.0]], [0.0], **params))
        return model.predict(pd.DataFrame({"a": [-9.0, 0.0, 1.0, 2.0]})).tolist()

    assert labels() == [0.0, 0.0, 1.0, 1.0]
    assert labels(threshold=0.8) == [0.0, 0.0, 0.0, 1.0]
    assert labels(threshold=0.0) == [1.0] * 4
    assert labels(threshold=1.0) == [0.0] * 4
    assert labels(thresholds=[0.2, 0.8]) == [0.0, 0.0, 0.0, 1.0]
    assert labels(thresholds=[0.8, 0.0]) == [1.0] * 4
    assert labels(thresholds=[0.0, 0.5]) == [0.0] * 4
    model = scorer(saved.assembler("a"), saved.logistic([[1.0]], [0.0]))
    frame = pd.DataFrame({"a": [1.0]})
    np.testing.assert_allclose(model.decision_function(frame), [[-1.0, 1.0]])
    first = 1 / (1 + math.exp(1.0))
    np.testing.assert_allclose(model.predict_proba(frame), [[first, 1 - first]])


def test_thresholds_divide_probabilities_and_a_zero_wins_unless_nothing_speaks_for_it() -> None:
    stump = saved.below(0, 0.5, saved.leaf(0.0, 6.0, 4.0, 0.0), saved.leaf(0.0, 5.0, 4.0, 1.0))
    head, kind = saved.assembler("a"), "DecisionTreeClassificationModel"
    frame = pd.DataFrame({"a": [0.5, 0.6]})
    plain = scorer(head, saved.tree(kind, stump, 1, 3))
    assert plain.predict(frame).tolist() == [0.0, 0.0]
    assert plain.decision_function(frame).tolist() == [[6, 4, 0], [5, 4, 1]]
    assert plain.predict_proba(frame).tolist() == [[0.6, 0.4, 0], [0.5, 0.4, 0.1]]
    weighed = scorer(head, saved.tree(kind, stump, 1, 3, thresholds=[0.6, 0.3, 0.0]))
    assert weighed.predict(frame).tolist() == [1.0, 2.0]


def test_ties_go_to_the_first_class_and_an_empty_leaf_has_no_probability() -> None:
    stump = saved.below(0, 0.0, saved.leaf(0.0, 2.0, 2.0), saved.leaf(0.0, 0.0, 0.0))
    model = scorer(
        saved.assembler("a"), saved.trees("RandomForestClassificationModel", [stump] * 2, 1, 2)
    )
    frame = pd.DataFrame({"a": [0.0, 1.0]})
    assert model.predict(frame).tolist() == [0.0, 0.0]
    assert model.predict_proba(frame).tolist() == [[0.5, 0.5], [0.0, 0.0]]
    assert model.decision_function(frame).tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("left", "codes"),
    [
        ([0], {0.0: 1.0}),  # the smaller set goes left: all else goes right
        ([0, 2, 3], {1.0: 2.0}),  # the smaller set goes right: all else goes left
    ],
)
def test_values_that_are_no_category_go_with_the_larger_set(
    left: list[int], codes: dict[float, float]
) -> None:
    values = [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5, 1.5, 1e300, NAN]
    root = saved.among(0, left, 4, saved.leaf(1.0), saved.leaf(2.0))
    model = scorer(
        saved.tree("DecisionTreeRegressionModel", root, 1),
        inputs=["a"],
    )
    others = 2.0 if len(left) == 1 else 1.0
    assert model.predict(pd.DataFrame({"a": values})).tolist() == [
        codes.get(v, others) for v in values
    ]


def test_nan_goes_right_at_a_threshold() -> None:
    root = saved.below(0, 0.0, saved.leaf(1.0), saved.leaf(2.0))
    model = scorer(saved.tree("DecisionTreeRegressionModel", root, 1), inputs=["a"])
    frame = pd.DataFrame({"a": [0.0, math.nextafter(0.0, 1.0), NAN]})
    assert model.predict(frame).tolist() == [1.0, 2.0, 2.0]


@pytest.mark.parametrize("names", [("_1", "_2", "_3"), ("treeID", "metadata", "weights")])
def test_boosted_trees_are_weighted_and_forests_are_not(names: tuple[str, str, str]) -> None:
    """Spark 3 and 4 call the columns of treesMetadata otherwise."""
    held = [saved.leaf(4.0), saved.below(0, 0.0, saved.leaf(1.0), saved.leaf(-2.0))]
    frame = pd.DataFrame({"a": [0.0, 1.0]})

    def model(kind: str, *classes: int) -> Scorer:
        weights = [1.0, 0.5]
        return scorer(
            saved.trees(kind, held, 1, *classes, weights=weights, names=names), inputs=["a"]
        )

    assert model("GBTRegressionModel").predict(frame).tolist() == [4.5, 3.0]
    assert model("RandomForestRegressionModel").predict(frame).tolist() == [2.5, 1.0]
    boosted = model("GBTClassificationModel", 2)
    assert boosted.predict(frame).tolist() == [1.0, 1.0]
    assert boosted.decision_function(frame).tolist() == [[-4.5, 4.5], [-3.0, 3.0]]
    first = 1 / (1 + math.exp(9.0))
    np.testing.assert_allclose(boosted.predict_proba(frame)[0], [first, 1 - first])


def test_the_nearest_centre_is_the_first_of_equals() -> None:
    centres = [[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0]]
    frame = pd.DataFrame({"a": [0.0, -0.5, 0.0], "b": [0.0, 0.0, 9.0]})
    model = scorer(saved.k_means(*centres), inputs=["a", "b"])
    assert model.predict(frame).tolist() == [0, 1, 2]
    by_angle = scorer(saved.k_means(*centres, distanceMeasure="cosine"), inputs=["a", "b"])
    assert by_angle.predict(frame[1:]).tolist() == [1, 2]
    with pytest.raises(errors.MissingValueError, match="no distance to a row of zeros"):
        by_angle.predict(frame)


def named(*labels: str, read: str = "prediction") -> Folder:
    return saved.stage(
        "IndexToString", {"inputCol": read, "outputCol": "s", "labels": list(labels)}
    )


def test_an_index_to_string_names_the_labels() -> None:
    head = [saved.assembler("a"), saved.logistic([[1.0]], [0.0])]
    made = imported(*head, named("no", "yes", "never"))
    assert made.program.labels[0].values == ("no", "yes")
    assert imported(*head, named("x", read="other")).program.labels[0].values == (0.0, 1.0)
    for bad, says in (
        (named("no"), "1 labels for 2 classes"),
        (named("no", "no"), "1 labels for 2 classes"),
        (named(), "set them with IndexToString"),
    ):
        with pytest.raises(errors.UnsupportedModelError, match=says):
            imported(*head, bad)
    with pytest.raises(errors.UnsupportedModelError, match="predictions of a regression"):
        imported(saved.assembler("a"), saved.linear([1.0], 0.0), named("x"))


# -- what is refused

ABOUT: dict[str, tuple[Callable[[Any], None], str]] = {
    "an old Spark": (lambda a: a.update(sparkVersion="2.4.8"), "Spark 2.4.8 saved this model"),
    "no version": (lambda a: a.pop("sparkVersion"), "damaged.*sparkVersion"),
    "another class": (
        lambda a: a.update({"class": "org.apache.spark.ml.clustering.LDAModel"}),
        "does not import the stage LDAModel",
    ),
    "a class elsewhere": (
        lambda a: a.update({"class": "evil.LinearRegressionModel"}),
        "does not import the stage LinearRegressionModel",
    ),
    "a search": (
        lambda a: a.update({"class": "org.apache.spark.ml.tuning.CrossValidatorModel"}),
        "register its bestModel",
    ),
    "parameters that are none": (lambda a: a.update(paramMap=[]), "damaged"),
    "a name that is none": (lambda a: a["paramMap"].update(featuresCol=3), "not a string"),
}


@pytest.mark.parametrize(("change", "match"), ABOUT.values(), ids=ABOUT)
def test_metadata_that_is_refused(change: Callable[[Any], None], match: str) -> None:
    with pytest.raises(errors.ModelError, match=match):
        imported(changed(saved.linear([1.0], 0.0), change), inputs=["a"])


def bad_tree(change: Callable[[list[Any]], Any]) -> Folder:
    inner = saved.below(0, 1.0, saved.leaf(1.0), saved.leaf(2.0))
    rows = saved.nodes(saved.among(1, [0], 3, inner, saved.leaf(3.0)))
    change(rows)
    table = saved.parquet(rows, saved.NODE)
    return saved.stage(
        "DecisionTreeRegressionModel", saved.PREDICTION, {"data": table}, numFeatures=2
    )


def split(row: int, **values: Any) -> Callable[[list[Any]], Any]:
    return lambda rows: rows[row]["split"].update(values)


TREES: dict[str, tuple[Callable[[list[Any]], Any], str]] = {
    "a circle": (lambda r: r[1].update(leftChild=0), "two parents"),
    "a child beyond": (lambda r: r[1].update(leftChild=99), "a child belongs to no tree"),
    "a child below": (lambda r: r[1].update(leftChild=-7), "negative number"),
    "one child": (lambda r: r[1].update(leftChild=-1), "one child"),
    "an orphan": (lambda r: r[0].update(leftChild=-1, rightChild=-1), "no parent"),
    "a number twice": (lambda r: r[3].update(id=2), "not numbered from 0"),
    "a feature beyond": (split(1, featureIndex=2), "a column that does not exist"),
    "a negative feature": (split(1, featureIndex=-1), "a split has no column"),
    "no threshold": (split(1, leftCategoriesOrThreshold=[]), "exactly one threshold"),
    "a threshold of NaN": (split(1, leftCategoriesOrThreshold=[NAN]), "not finite"),
    "a category beyond": (
        split(0, leftCategoriesOrThreshold=[3.0]),
        "categories that do not exist",
    ),
    "half a category": (split(0, leftCategoriesOrThreshold=[0.5]), "categories that do not exist"),
    "a category twice": (
        split(0, leftCategoriesOrThreshold=[0.0, 0.0]),
        "categories that do not exist",
    ),
    "endless categories": (split(0, numCategories=2**31 - 1), "more categories than"),
    "both kinds of split": (split(1, featureIndex=1), "as numbers and as categories"),
    "a leaf of NaN": (lambda r: r[2].update(prediction=NAN), "not finite"),
    "a row that is NULL": (lambda r: r[2].update(id=None), "NULL"),
    "no node": (lambda r: r.clear(), "has no node"),
}


@pytest.mark.parametrize(("change", "match"), TREES.values(), ids=TREES)
def test_trees_that_no_fit_makes(change: Callable[[list[Any]], Any], match: str) -> None:
    with pytest.raises(errors.ArtifactError, match=match):
        imported(bad_tree(change), inputs=["a", "b"])


STAGES: dict[str, tuple[Folder, str]] = {
    "rows left out": (saved.assembler("a", handleInvalid="skip"), "drops rows"),
    "labels twice": (saved.indexer("a", "b", "x", "x"), "distinct strings"),
    "no category": (saved.one_hot("a", "b", 0), "has 0 categories"),
    "too many categories": (saved.one_hot("a", "b", 2**31 - 1), "categories for the column"),
    "an infinite weight": (saved.linear([INF], 0.0), "not finite"),
    "a single class": (saved.logistic([[0.0]], [-INF]), "fitted on a single class"),
    "other thresholds": (
        saved.logistic([[1.0]], [0.0], thresholds=[1.0]),
        "do not match 2 classes",
    ),
    "a threshold beyond": (saved.logistic([[1.0]], [0.0], threshold=2.0), "threshold is 2.0"),
    "no prediction": (saved.logistic([[1.0]], [0.0], predictionCol=""), "predictionCol is empty"),
    "other distances": (saved.k_means([1.0], distanceMeasure="x"), "'x' is not known"),
    "a norm": (saved.stage("Normalizer", {"inputCol": "a", "outputCol": "b"}), "VectorAssembler"),
}


@pytest.mark.parametrize(("stage", "match"), STAGES.values(), ids=STAGES)
def test_stages_that_are_refused(stage: Folder, match: str) -> None:
    with pytest.raises(errors.ModelError, match=match):
        imported(stage, inputs=["a"])


def test_folders_that_are_incomplete() -> None:
    whole = saved.pipeline(saved.assembler("a"), saved.linear([1.0], 0.0))
    at = "stages/1_LinearRegressionModel_1/"
    for name, says in (
        (f"{at}data/part-00000-x.snappy.parquet", "no file in its folder 'data'"),
        (f"{at}metadata/part-00000", "no metadata in its folder|lacks the folder"),
    ):
        with pytest.raises(errors.ArtifactError, match=says):
            imported({n: held for n, held in whole.items() if n != name})
    with pytest.raises(errors.ArtifactError, match="lacks the folder stages/1_gone"):
        imported(changed(whole, lambda a: a["paramMap"]["stageUids"].__setitem__(1, "gone")))
    with pytest.raises(errors.ArtifactError, match="lacks the folder stages/0_../../x"):
        imported(changed(whole, lambda a: a["paramMap"]["stageUids"].__setitem__(0, "../../x")))
    nested = saved.linear([1.0], 0.0)
    for _ in range(14):
        nested = changed(saved.pipeline(nested), lambda a: a.update(uid="p"))
    with pytest.raises(errors.ArtifactError, match="nested more than"):
        imported(nested)


# -- in SQL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = saved.pipeline(
        saved.indexer("city", "code", "Ulm", "Bonn"),
        saved.assembler("a", "code"),
        saved.linear([1.0, 10.0], 0.5),
    )
    return saved.write(files, tmp_path / "model")


def test_a_folder_is_a_model_file(folder: Path) -> None:
    with sqlml.connect() as con:
        con.execute(f"CREATE MODEL m FROM '{folder}'")
        con.execute(f"CREATE MODEL n FROM 'file://{folder}' FORMAT SPARK")
        con.execute("CREATE TABLE t AS SELECT 2.0 AS a, 'Bonn' AS city")
        assert con.execute("SELECT predict('m', *), predict('n', *) FROM t").fetchall() == [
            (12.5, 12.5)
        ]
        ((_, statement),) = con.execute("SHOW CREATE MODEL m").fetchall()
        assert "FORMAT SPARK" in statement
        con.execute(statement.replace('"m"', "pinned"))
        part = next(folder.glob("stages/2*/metadata/part-*"))
        part.write_bytes(part.read_bytes() + b" ")
        with pytest.raises(errors.ArtifactError, match="does not have the sha256"):
            con.execute(statement.replace('"m"', "other"))


def test_links_and_pipes_in_a_folder_are_refused(folder: Path) -> None:
    odd = folder / "stages" / "odd"
    with sqlml.connect() as con:
        odd.symlink_to("/etc")
        with pytest.raises(errors.ArtifactError, match="is a link; a model folder"):
            con.execute(f"CREATE MODEL m FROM '{folder}'")
        odd.unlink()
        os.mkfifo(odd)
        with pytest.raises(errors.ArtifactError, match="is a pipe; a model folder"):
            con.execute(f"CREATE MODEL m FROM '{folder}'")


def test_a_file_that_spark_would_read_beside_the_parts_is_refused(folder: Path) -> None:
    """It is what Spark would read first, when it is asked to verify the model."""
    with sqlml.connect() as con:
        (folder / "metadata" / ".hidden").write_text("{}")
        con.execute(f"CREATE MODEL m FROM '{folder}'")
        (folder / "metadata" / "a").write_text('{"class": "a.b.C"}')
        with pytest.raises(
            errors.ArtifactError, match="contains 'metadata/a', which Spark does not"
        ):
            con.execute(f"CREATE OR REPLACE MODEL m FROM '{folder}'")


def test_what_is_no_such_folder_says_what_is(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "metadata").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"{}")
    with sqlml.connect() as con:
        for path, form, says in (
            (tmp_path, "AUTO", "is a directory .* name a model file, or"),
            (tmp_path / "other", "AUTO", "lacks metadata/part-.."),
            (folder, "XGBOOST", "is a directory"),
            (tmp_path / "file", "SPARK", "is a file; FORMAT SPARK needs the folder"),
        ):
            with pytest.raises(errors.ArtifactError, match=says):
                con.execute(f"CREATE MODEL m FROM '{path}' FORMAT {form}")


def test_a_folder_is_read_under_the_engines_own_settings(folder: Path) -> None:
    with sqlml.connect() as con:
        con.execute("SET enable_external_access = false")
        with pytest.raises(Exception, match="disabled"):
            con.execute(f"CREATE MODEL m FROM '{folder}'")


def test_neither_spark_nor_java_is_needed_but_to_verify(folder: Path, tmp_path: Path) -> None:
    code = f"""
import sqlml
with sqlml.connect() as con:
    con.execute("CREATE MODEL m FROM '{folder}'")
    print(con.execute("SELECT predict('m', a := 1, city := 'Ulm')").fetchall())
    print("pyspark" in sys.modules)
    try:
        con.execute("VERIFY MODEL m USING (SELECT 1 AS a, 'Ulm' AS city)")
    except sqlml.errors.SqlmlError as error:
        print(error)
"""
    done = child.run(code, tmp_path)
    answer, loaded, message = done.stdout.splitlines()
    assert (answer, loaded) == ("[(1.5,)]", "False")
    assert "this process has none: create one" in message or "pyspark is not installed" in message
