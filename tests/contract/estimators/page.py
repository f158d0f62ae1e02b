"""docs/operators.md: what of scikit-learn is covered, and on which backends, from the cases.

python -m tests.contract.estimators.page --write
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
from sqlml.importers.registry import class_path
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

INTRODUCTION = """# What sqlml imports

Made by `make docs` from the tables of classes, operators and objectives that the importers read,
and from the cases of the contract suite (`tests/contract/estimators`), each of which is compared
with its library on every backend named here.

The native and reference backends run every operator. A tensor backend is named where it runs the
model: checks, strings and sparse rows on the host, the rest as tensors. A fitted object offers
those of the outputs that its own parameters give it: `SVC(probability=True)` has `proba`, another
has not. Outputs are `label`
(`predict` in SQL), `proba` (`predict_proba`), `score` (`predict_score`), `samples`
(`predict_score` of a model without `score`) and `transform`.
"""


def classes_in(model: Any) -> Iterator[str]:
    """The class of an unfitted estimator, and those of the estimators in its parameters."""
    yield class_path(model)
    for value in model.get_params(deep=True).values() if hasattr(model, "get_params") else ():
        if hasattr(value, "fit"):
            yield class_path(value)


def tensor_backends(program: Program) -> list[str]:
    """The tensor backends that run `program`, each with the strategies that do."""
    found = []
    has_trees = any(node.op == "tree_ensemble" for node in program)
    for name, entry in base.BACKENDS.items():
        if entry.level == "tensor":
            backend = base.load_backend(name)
            strategies = [s for s in entry.strategies if _runs(backend, program, s)]
            if strategies:
                found.append(f"{name} ({', '.join(strategies)})" if has_trees else name)
    return found


def _runs(backend: base.Backend, program: Program, strategy: str) -> bool:
    if strategy == "fused":
        return False  # the page is the same on machines with a GPU, which that needs
    try:
        return backend.supports(lower(program, strategy)) is None
    except BackendError:
        return False


def render() -> str:
    """The whole page."""
    paths = sorted(
        {f"{c.__module__}.{c.__qualname__}": n for n, c in all_estimators()}.items(),
        key=lambda pair: pair[1],
    )
    covered = [(p, n) for p, n in paths if p in IMPORTERS or p in COMPOSITES]
    refused = [(p, n) for p, n in paths if p in UNSUPPORTED]
    examples = _examples()
    lines = [
        INTRODUCTION,
        f"## scikit-learn {sklearn.__version__}: {len(covered)} of {len(paths)} estimators\n",
        "| Estimator | Outputs | Tensor backends |",
        "|---|---|---|",
    ]
    for path, name in covered:
        if path not in examples:  # fitted on mappings and not on a table
            lines.append(f"| {name} | transform | |")
            continue
        programs = [Fitted.of(case).imported.program for case in examples[path]]
        outputs = [o for o in OUTPUTS if any(o in p.outputs for p in programs)]
        tensors = "; ".join(tensor_backends(programs[0])) or "none"
        lines.append(f"| {name} | {', '.join(outputs)} | {tensors} |")
    lines += [
        f"\n## Not imported: {len(refused)}\n",
        "| Estimator | Reason |",
        "|---|---|",
        *(f"| {name} | {UNSUPPORTED[path]} |" for path, name in refused),
        *_other_libraries(),
    ]
    return "\n".join(lines) + "\n"


def _other_libraries() -> Iterator[str]:
    """Boosters with their objectives, the operators of ONNX and torch, and the files."""
    for title, classes, objectives, notes in (
        ("XGBoost", xgboost.IMPORTERS, xgboost_objectives, "boosters gbtree, dart and gblinear"),
        ("LightGBM", lightgbm.IMPORTERS, lightgbm_objectives, "linear trees too"),
        (
            "CatBoost",
            catboost.IMPORTERS,
            catboost_losses,
            "numbers and categories, their statistics (CTR) too",
        ),
    ):
        names = [path.rsplit(".", 1)[1] for path in classes if "." in path]
        yield f"\n## {title}\n"
        yield f"Classes: {_listed(names)}; {notes}.\n"
        yield f"Objectives: {_listed(objectives)}."
    yield f"\n## ONNX: {len(onnx_operators)} operators\n"
    yield f"{_listed(onnx_operators)}.\n"
    yield "A file with any other operator runs whole in onnxruntime, if that has it."
    operators = sorted({name.split(".")[1] for name in torch_operators})
    yield f"\n## torch: {len(operators)} operators of exported programs\n"
    yield f"{_listed(operators)}.\n"
    yield "A module with any other operator runs whole in torch."
    nets = [path.rsplit(".", 1)[1] for path in skorch.IMPORTERS if path.startswith("skorch.")]
    yield "\n## skorch\n"
    yield f"Nets: {_listed(nets)}; with any torch module."
    balanced = [path.rsplit(".", 1)[1] for path in imblearn.COMPOSITES]
    yield "\n## imbalanced-learn\n"
    yield f"{_listed(balanced)}; samplers are left out, since they change rows of training only."
    encoders = [path.rsplit(".", 1)[1] for path in category_encoders.IMPORTERS]
    yield "\n## category_encoders\n"
    yield f"{_listed(encoders)}, with all their options."
    of_engine = [*feature_engine.IMPORTERS, *feature_engine.COMPOSITES]
    steps = [path.rsplit(".", 1)[1] for path in of_engine]
    yield "\n## feature_engine\n"
    yield f"{_listed(steps)}."
    yield "\n## statsmodels\n"
    yield (
        "Results of `OLS`, `WLS`, `GLS`, `GLSAR`, `Logit`, `Probit`, `Poisson`, and of `GLM` with "
        "the links "
        f"{_listed(statsmodels.LINKS)}, fitted on arrays, frames or formulas (read by patsy: "
        "categories with any contrasts, interactions, arithmetic, numpy's functions, `center` and "
        "`standardize`). "
        "`label` is what their `predict` returns, `score` the linear predictor."
    )
    names = [path.rsplit(".", 1)[1] for path in spark_classes]
    yield "\n## pyspark.ml\n"
    yield f"Predictors: {_listed(name for name in names if name in PREDICTORS)}.\n"
    yield f"Others: {_listed(name for name in names if name not in PREDICTORS)}.\n"
    yield (
        "Of a pipeline `label` is the `prediction` of its last predictor, or what an "
        "`IndexToString` of it says, `proba` its `probability`, and `score` its `rawPrediction`; "
        "`transform` is what the last stage makes where there is no predictor."
    )
    yield "\n## Files\n"
    formats = _listed(sorted((*READERS, FOLDER_FORMAT)))
    yield f"`FORMAT` {formats}; `FORMAT AUTO`, the default, looks at the content."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _examples() -> Mapping[str, list[Case]]:
    """For each class its own cases; where it only stands inside others, one of those."""
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
