"""Generate docs/operators.md, the list of supported models, from importers and contract cases.

Usage: python -m tests.contract.estimators.page --write
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import sklearn
from sklearn.experimental import (  # noqa: F401  # their import is their use
    enable_halving_search_cv,
    enable_iterative_imputer,
)
from sklearn.utils import all_estimators

from sqlml.backends import base
from sqlml.errors import BackendError
from sqlml.importers import category_encoders, feature_engine, imblearn, statsmodels
from sqlml.importers.catboost import importer as catboost
from sqlml.importers.catboost.importer import LOSSES as catboost_losses
from sqlml.importers.file_formats import FOLDER_FORMAT, READERS
from sqlml.importers.lightgbm import importer as lightgbm
from sqlml.importers.lightgbm.importer import OBJECTIVES as lightgbm_objectives
from sqlml.importers.onnx.importer import FUNCTIONS as onnx_operators
from sqlml.importers.registry import find_class_key
from sqlml.importers.sklearn.estimator_table import COMPOSITES, IMPORTERS, UNSUPPORTED
from sqlml.importers.spark_ml.importer import CLASSES as spark_classes
from sqlml.importers.spark_ml.importer import PREDICTORS
from sqlml.importers.torch import wrapped_modules as skorch
from sqlml.importers.torch.aten_graph import RULES as torch_operators
from sqlml.importers.xgboost import importer as xgboost
from sqlml.importers.xgboost.importer import OBJECTIVES as xgboost_objectives
from sqlml.ir.ops import OUTPUTS
from sqlml.ir.program import Program
from sqlml.passes.lower import lower
from tests.contract.estimators.case import Case
from tests.contract.estimators.fitted import Fitted
from tests.contract.estimators.table import ALL

PAGE = Path(__file__).parents[3] / "docs" / "operators.md"

INTRODUCTION = """# Supported models

This page lists the models that sqlml imports, library by library. The native backend runs all of
them on the CPU. If your model is not here, see
[When a model is rejected](register.md#when-a-model-is-rejected).

| output | what returns it in SQL |
|---|---|
| `label` | `predict` |
| `proba` | `predict_proba` |
| `score` (decision function or margin), `samples` (log-likelihood) | `predict_score` |
| `transform` | `transform` |

Some outputs depend on parameters: an `SVC` has `proba` only if it was fitted with
`probability=True`.

*Tensor backends* are the other backends that can run a model, torch and onnxruntime; `both` stands
for the two. Tests compare the predictions on each of them with the library's. Choose a backend with
the [option](sql-options.md#options-of-a-model) `backend`. Checks of values, and steps that read
strings or sparse rows, run on the CPU with every backend.

Behind the backend of a model with trees are the strategies that can evaluate them, which the option
`strategy` chooses. The first three are the Hummingbird paper's:

| strategy | how it evaluates trees |
|---|---|
| `gemm` | as three matrix products |
| `tt` | tree traversal: all rows go down one level of all trees at a time |
| `ptt` | perfect tree traversal: as `tt`, in trees that are padded to complete binary trees |
| `traverse` | with the operator of the backend for whole ensembles |
| `fused` | with one GPU kernel for all trees (torch only) |
"""

CONTAINERS = """
### Estimators that contain others

sqlml imports these estimators if it can import every estimator in them. Their outputs and tensor
backends depend on what they contain.
"""

BOTH = "torch; onnxruntime"


def classes_in(model: Any) -> Iterator[str]:
    """Yield the class paths of an unfitted estimator and of the estimators in its parameters."""
    yield find_class_key(model)
    for value in model.get_params(deep=True).values() if hasattr(model, "get_params") else ():
        if hasattr(value, "fit"):
            yield find_class_key(value)


def tensor_backends(program: Program) -> list[str]:
    """Return the tensor backends that run `program`, with their strategies if it has trees."""
    backends = []
    has_trees = any(node.op == "tree_ensemble" for node in program)
    for name, entry in base.BACKENDS.items():
        if entry.level == "tensor":
            backend = base.load_backend(name)
            strategies = [s for s in entry.strategies if _runs(backend, program, s)]
            if strategies:
                backends.append(f"{name} ({', '.join(strategies)})" if has_trees else name)
    return backends


def _runs(backend: base.Backend, program: Program, strategy: str) -> bool:
    if strategy == "fused":
        return False  # It needs a GPU, and the page must be the same on machines without one.
    try:
        return backend.supports(lower(program, strategy)) is None
    except BackendError:
        return False


def render() -> str:
    """Return the text of the page."""
    estimators = sorted(
        ((f"{c.__module__}.{c.__qualname__}", name) for name, c in all_estimators()),
        key=lambda estimator: estimator[1],
    )
    imported = [(path, name) for path, name in estimators if path in IMPORTERS]
    containers = [name for path, name in estimators if path in COMPOSITES]
    total = len(imported) + len(containers)
    return "\n".join(
        [
            INTRODUCTION,
            f"## scikit-learn {sklearn.__version__}: {total} of {len(estimators)} estimators\n",
            "| estimator | outputs | tensor backends |",
            "|---|---|---|",
            *_estimator_rows(imported),
            CONTAINERS,
            f"{_format_names(containers)}.\n",
            *_rejected_estimators(estimators),
            *_boosters(),
            *_graphs(),
            *_other_libraries(),
            "\n## Files\n",
            "In `CREATE MODEL ... FROM`, `FORMAT` is one of "
            f"{_format_names(sorted((*READERS, FOLDER_FORMAT)))}. The default, `FORMAT AUTO`, "
            "recognizes a file by its contents.",
            "",
        ]
    )


def _estimator_rows(estimators: Iterable[tuple[str, str]]) -> Iterator[str]:
    examples = _examples()
    for path, name in estimators:
        if path not in examples:  # It is fitted on mappings instead of a table.
            yield f"| {name} | transform | none |"
            continue
        programs = [Fitted.of(case).imported.program for case in examples[path]]
        outputs = [o for o in OUTPUTS if any(o in program.outputs for program in programs)]
        backends = "; ".join(tensor_backends(programs[0])) or "none"
        backends = "both" if backends == BOTH else backends
        yield f"| {name} | {', '.join(outputs)} | {backends} |"


def _rejected_estimators(estimators: Iterable[tuple[str, str]]) -> Iterator[str]:
    names_by_reason: dict[str, list[str]] = {}
    for path, name in estimators:
        if path in UNSUPPORTED:
            names_by_reason.setdefault(UNSUPPORTED[path], []).append(name)
    yield f"### Rejected estimators: {sum(map(len, names_by_reason.values()))}\n"
    yield "| estimators | reason |"
    yield "|---|---|"
    for reason, names in names_by_reason.items():
        yield f"| {_format_names(names)} | {reason} |"


def _boosters() -> Iterator[str]:
    for title, classes, objectives, features in (
        (
            "XGBoost",
            xgboost.IMPORTERS,
            xgboost_objectives,
            "with the boosters gbtree, dart and gblinear",
        ),
        (
            "LightGBM",
            lightgbm.IMPORTERS,
            lightgbm_objectives,
            "including categories and linear trees",
        ),
        (
            "CatBoost",
            catboost.IMPORTERS,
            catboost_losses,
            "including categories and their CTR statistics",
        ),
    ):
        yield f"\n## {title}\n"
        yield f"Classes: {_format_names(_class_names(classes))}, {features}.\n"
        yield f"Objectives: {_format_names(sorted(objectives))}."


def _graphs() -> Iterator[str]:
    yield f"\n## ONNX: {len(onnx_operators)} operators\n"
    yield f"{_format_names(sorted(onnx_operators))}.\n"
    yield "A graph with any other operator runs as a whole in onnxruntime, if that supports it."
    operators = sorted({name.split(".")[1] for name in torch_operators})
    yield f"\n## torch: {len(operators)} operators of exported programs\n"
    yield f"{_format_names(operators)}.\n"
    yield "A program with any other operator runs as a whole in torch."


def _other_libraries() -> Iterator[str]:
    nets = [name for name in skorch.IMPORTERS if name.startswith("skorch.")]
    steps = [*feature_engine.IMPORTERS, *feature_engine.COMPOSITES]
    stages = _class_names(spark_classes)
    for title, text in (
        ("skorch", f"{_format_names(_class_names(nets))}, with any torch module."),
        (
            "imbalanced-learn",
            f"{_format_names(_class_names(imblearn.COMPOSITES))}. A pipeline may contain samplers. "
            "They only resample the training rows, so sqlml leaves them out.",
        ),
        (
            "category_encoders",
            f"{_format_names(_class_names(category_encoders.IMPORTERS))}, with all their options.",
        ),
        ("feature_engine", f"{_format_names(_class_names(steps))}."),
        (
            "statsmodels",
            "Results of `OLS`, `WLS`, `GLS`, `GLSAR`, `Logit`, `Probit`, `Poisson`, and of `GLM` "
            f"with the links {_format_names(statsmodels.LINKS)}. They may be fitted on arrays, "
            "on data frames, or with formulas. A formula may contain categories with any "
            "contrasts, interactions, arithmetic, numpy functions, `center` and `standardize`. "
            "`predict` returns the result of the model's own `predict`, and `predict_score` the "
            "linear predictor.",
        ),
        (
            "pyspark.ml",
            f"Predictors: {_format_names(name for name in stages if name in PREDICTORS)}.\n\n"
            f"Other stages: {_format_names(name for name in stages if name not in PREDICTORS)}.\n\n"
            "For a pipeline, `label`, `proba` and `score` are the columns `prediction`, "
            "`probability` and `rawPrediction` of the last predictor. If an `IndexToString` reads "
            "the prediction, `label` is its output. Without a predictor, `transform` is the output "
            "of the last stage.",
        ),
    ):
        yield f"\n## {title}\n\n{text}"


def _class_names(paths: Iterable[str]) -> list[str]:
    return [path.rsplit(".", 1)[1] for path in paths if "." in path]


def _format_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _examples() -> Mapping[str, list[Case]]:
    """Map each class path to its own cases, or to one case of an estimator that contains it."""
    own: dict[str, list[Case]] = {}
    inside: dict[str, list[Case]] = {}
    for case in ALL:
        first, *others = classes_in(case.make())
        own.setdefault(first, []).append(case)
        for path in others:
            inside.setdefault(path, [case])
    return {**inside, **own}


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(render())
    else:
        print(render())
