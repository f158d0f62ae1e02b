"""What sqlml imports: class path -> function, as data, and `import_model` that walks it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from sqlml.errors import ConfigError, ProgramError, UnsupportedModelError
from sqlml.importers import category_encoders, feature_engine, imblearn, statsmodels
from sqlml.importers.catboost import importer as catboost
from sqlml.importers.catboost.document import CatBoostModel
from sqlml.importers.frame import ANY_COUNT, Frame, Gaps, Outputs, Recurse, Schema
from sqlml.importers.lightgbm import importer as lightgbm
from sqlml.importers.lightgbm.document import LightGBMModel
from sqlml.importers.mlflow_folder import INSTEAD, PYFUNC
from sqlml.importers.model_checks import check_model, plain, unfitted, without_columns
from sqlml.importers.onnx import importer as onnx
from sqlml.importers.onnx.document import OnnxModel
from sqlml.importers.sklearn import estimator_table as sklearn
from sqlml.importers.sklearn.estimator_table import UNSUPPORTED
from sqlml.importers.sklearn.meta.compose import dict_separator
from sqlml.importers.spark_ml import pipeline as spark_ml
from sqlml.importers.spark_ml.stages import PYTHON, SparkModel, not_covered
from sqlml.importers.sql_steps.step import registered, sql_step
from sqlml.importers.sqlml_file import StoredModel
from sqlml.importers.torch import importer as torch
from sqlml.importers.torch import wrapped_modules
from sqlml.importers.torch import wrapped_modules as skorch
from sqlml.importers.xgboost import importer as xgboost
from sqlml.importers.xgboost.document import XGBoostModel
from sqlml.ir.builder import Builder
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.ir.torch_archive import Exported
from sqlml.types import DATETIME, Feature, Kind, fold

Leaf = Callable[[Any, Frame], Frame | Outputs]
"""A fitted object and the columns it reads -> the columns or outputs that it makes."""
Composite = Callable[[Any, Frame, Recurse], Frame | Outputs]
"""Like Leaf, for an object that holds others, which it passes to Recurse."""

IMPORTERS: Mapping[str, Leaf] = MappingProxyType(
    {
        **sklearn.IMPORTERS,
        **xgboost.IMPORTERS,
        **lightgbm.IMPORTERS,
        **catboost.IMPORTERS,
        **onnx.IMPORTERS,
        **torch.IMPORTERS,
        **wrapped_modules.DNN_IMPORTERS,
        **skorch.IMPORTERS,
        **spark_ml.IMPORTERS,
        **statsmodels.IMPORTERS,
        **category_encoders.IMPORTERS,
        **feature_engine.IMPORTERS,
        **feature_engine.IMPORTERS,
    }
)
COMPOSITES: Mapping[str, Composite] = MappingProxyType(
    {**sklearn.COMPOSITES, **imblearn.COMPOSITES, **feature_engine.COMPOSITES}
)
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = MappingProxyType(
    {
        **sklearn.SCHEMAS,
        **xgboost.SCHEMAS,
        **lightgbm.SCHEMAS,
        **catboost.SCHEMAS,
        **onnx.SCHEMAS,
        **torch.SCHEMAS,
        **wrapped_modules.DNN_SCHEMAS,
        **skorch.SCHEMAS,
        **spark_ml.SCHEMAS,
        **imblearn.SCHEMAS,
        **statsmodels.SCHEMAS,
    }
)
"""How to find a model's columns without scikit-learn's feature_names_in_."""
NAMES: Mapping[type, str] = MappingProxyType(
    {
        XGBoostModel: xgboost.FILE,
        LightGBMModel: lightgbm.FILE,
        CatBoostModel: catboost.FILE,
        OnnxModel: onnx.FILE,
        Exported: torch.FILE,
        SparkModel: spark_ml.FOLDER,
        Program: "sqlml program",
    }
)
"""Classes of our own in `IMPORTERS`. Databases store these names, so the classes may move."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A trained object as a Program, with the columns that it reads.

    `features` has every column of the training table in order; the Program's inputs are those
    of them that it reads. `named` is False when the object never saw names and none were given;
    `numbered` says that the features then have the default names of the object's library.
    `gaps` says what rows that leave out values mean to the object.
    """

    program: Program
    features: tuple[Feature, ...]
    source: str
    library: str
    named: bool
    gaps: Gaps = Gaps()
    numbered: bool = False


def import_model(model: Any, inputs: Sequence[str] | Mapping[str, str] | None = None) -> Imported:
    """Import a fitted object.

    Args:
        model: any object of `IMPORTERS` or `COMPOSITES`, or what was read from a file of ours.
        inputs: names of the columns in training order, or name -> SQL type; needed in SQL when
            the object was fitted without names and its library has no default names.

    Raises:
        UnsupportedModelError: unfitted, of another class, or with a parameter we do not cover.
        ConfigError: `inputs` does not fit the model.
    """
    if isinstance(model, Program):
        model = StoredModel(model, model.features, class_path(model), library_version(model))
    if isinstance(model, StoredModel):
        return _stored(model, inputs)
    model = _own(model)
    path = _entry(model)
    if not (_is_known(path) or registered(model)):
        raise _unknown(model)
    schema = _schema(model, path)
    if inputs is not None and path in torch.FAMILIES:
        schema = Schema(None, ANY_COUNT)  # its first layer only suggests a count
    if isinstance(inputs, Mapping):
        inputs = schema.written_out(inputs)
    names = _names(schema, inputs)
    declared = inputs if isinstance(inputs, Mapping) else {}
    builder = Builder()
    parts: set[str] = set()
    made = _converter(parts)(model, Frame.raw(builder, names, declared))
    try:
        if isinstance(made, Frame):
            made = Outputs({"transform": made.whole()})
        program = verify(builder.build(made.values, made.label_sets))
    except ProgramError as error:
        raise _refused(model, error) from error
    inputs_read = {f.name: f.kind for f in program.features}
    features = tuple(Feature(n, inputs_read.get(n, "any")) for n in names)
    if isinstance(inputs, Mapping):
        _check_kinds(features, inputs)
    named = schema.names is not None or inputs is not None
    return Imported(
        program,
        features,
        path,
        _libraries(model, parts),
        named,
        _gaps(model, path, parts),
        not named and schema.default_names is not None,
    )


def imported_onto(model: Any, frame: Frame) -> Frame | Outputs:
    """What a fitted object makes of the columns of a frame.

    Raises:
        UnsupportedModelError: unfitted, of another class, or with a parameter we do not cover.
    """
    return _converter(set())(model, frame)


def _gaps(model: Any, path: str, parts: Set[str]) -> Gaps:
    """Return how the model reads rows with gaps.

    Where a sparse matrix has nothing, XGBoost reads a missing value, and the others read 0.
    """
    cell: float | None = 0.0
    if not parts.isdisjoint(xgboost.IMPORTERS):
        cell = float("nan") if path in xgboost.IMPORTERS else None
    return Gaps(cell, dict_separator(model), not parts.isdisjoint(lightgbm.IMPORTERS))


def _stored(model: StoredModel, inputs: Sequence[str] | Mapping[str, str] | None) -> Imported:
    """A Program as a model: it is what an import made, or a file that claims to be."""
    program, columns = model.program, tuple(f.name for f in model.features)
    check_model(program)
    if _names(Schema(columns, len(columns)), inputs) != columns:
        raise ConfigError(f"a stored model keeps the names of its columns: {', '.join(columns)}")
    if isinstance(inputs, Mapping):
        _check_kinds(model.features, inputs)
    return Imported(program, model.features, model.source, model.library, True)


_DAMAGE = (
    AttributeError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AssertionError,
    RecursionError,
    MemoryError,
)
"""What importers raise on an object whose attributes are absent or not what its library made."""


def _refused(model: Any, error: ProgramError) -> UnsupportedModelError:
    return UnsupportedModelError(f"{type(model).__name__} cannot be imported: {error}")


def _damaged(model: Any, error: BaseException) -> UnsupportedModelError:
    library = _package(model)
    return UnsupportedModelError(
        f"this {type(model).__name__} is not what its library's fit makes "
        f"({type(error).__name__}: {error}): it is damaged, only partly fitted, or comes from "
        f"another version of {library}; fit it again. If {library} can predict with it as it is, "
        "the fault is sqlml's: please report this message"
    )


def _schema(model: Any, path: str) -> Schema:
    try:
        schema = SCHEMAS.get(path, sklearn_schema)(model)
        unnamed = schema.names is None and schema.default_names is None
        if unnamed and schema.count != ANY_COUNT and path.startswith(("sklearn.", "imblearn.")):
            # scikit-learn's get_feature_names_out calls columns without names so.
            return replace(schema, default_names=tuple(f"x{i}" for i in range(schema.count)))
        return schema
    except UnsupportedModelError:
        foreign = _foreign_part(model)
        if foreign is None:
            raise
        raise _unknown(foreign) from None
    except _DAMAGE as error:
        raise _damaged(model, error) from error


def _foreign_part(model: Any) -> Any:
    """The first step of a pipeline or the like whose class has no importer; None if all have
    one."""
    steps = [*getattr(model, "steps", []), *getattr(model, "transformer_list", [])]
    parts = [step[1] for step in steps if isinstance(step, tuple) and len(step) > 1]
    for part in [*parts, getattr(model, "best_estimator_", None)]:
        if part is None or isinstance(part, str):
            continue
        part = _own(part)
        if not (_is_known(_entry(part)) or registered(part)):
            return part
        found = _foreign_part(part)
        if found is not None:
            return found
    return None


def _own(model: Any) -> Any:
    """The object as one of a class that has an importer, or whose SQL is registered."""
    return model if registered(model) else plain(model, _is_known)


def _is_known(path: str) -> bool:
    """Whether a class has an importer."""
    return path in IMPORTERS or path in COMPOSITES


def class_path(model: Any) -> str:
    """What `IMPORTERS` calls the object's class: its module and name, or its row in `NAMES`."""
    kind = type(model)
    return NAMES.get(kind, f"{kind.__module__}.{kind.__qualname__}")


def _entry(model: Any) -> str:
    """The path under which the registry knows the object: its class, or a family's base class."""
    bases = (f"{c.__module__}.{c.__qualname__}" for c in type(model).__mro__)
    return next((path for path in bases if path in torch.FAMILIES), class_path(model))


def _package(model: Any) -> str:
    """The Python package that the object, or the file that it was read from, belongs to."""
    return re.split("[. ]", _entry(model))[0]


_DISTRIBUTIONS = {
    "imblearn": ("imbalanced-learn",),
    "sklearn": ("scikit-learn",),
    "xgboost": ("xgboost-cpu",),
}
"""Packages with a different name on PyPI."""


def library_version(model: Any) -> str:
    """Library and version that the object's class comes from, e.g. "sklearn 1.9.1"."""
    written_by = getattr(model, "written_by", None)
    if isinstance(written_by, str):  # a model file states who wrote it
        return written_by
    return _installed_version(_package(model))


def _installed_version(package: str) -> str:
    """Return a package with its version, or its name alone where it is not installed."""
    for name in (package, *_DISTRIBUTIONS.get(package, ())):
        try:
            return f"{package} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return package


def _libraries(model: Any, parts: Set[str]) -> str:
    """Return the library of a model and those of its parts, e.g. "sklearn 1.9.1, xgboost 3.2.0"."""
    packages = {part.partition(".")[0] for part in parts if part in IMPORTERS and " " not in part}
    others = sorted(packages - {_package(model)})
    return ", ".join([library_version(model), *map(_installed_version, others)])


def sklearn_schema(model: Any) -> Schema:
    """Columns of an object that follows scikit-learn's conventions.

    Raises:
        UnsupportedModelError: it does not know how many columns it was fitted on.
    """
    schema = Schema.recorded(model)
    if schema is None and registered(model):
        return Schema(None, ANY_COUNT)
    if schema is None:
        raise without_columns(model)
    return schema


def _converter(parts: set[str]) -> Recurse:
    """What imports an object and what it holds; `parts` gets the class paths of all of them."""

    def convert(model: Any, frame: Frame) -> Frame | Outputs:
        model = _own(model)
        path = _entry(model)
        parts.add(path)
        kept = registered(model)
        try:
            if kept is not None:
                return sql_step(model, frame, kept)
            if path in COMPOSITES:
                return COMPOSITES[path](model, frame, convert)
            if path in IMPORTERS:
                return IMPORTERS[path](model, frame)
        except ProgramError as error:
            raise _refused(model, error) from error
        except _DAMAGE as error:
            raise _damaged(model, error) from error
        raise _unknown(model)

    return convert


def _unknown(model: Any) -> UnsupportedModelError:
    path = class_path(model)
    if model is None:
        return UnsupportedModelError("None is not a model; pass the fitted object itself")
    if isinstance(model, type):
        return UnsupportedModelError(
            f"{model.__name__} is a class, not a fitted object; make one and fit it: "
            f"model = {model.__name__}(..)" + ("; model.fit(X, y)" if hasattr(model, "fit") else "")
        )
    if path in _DATA or path.startswith(("pandas.", "polars.", "pyarrow.")):
        return UnsupportedModelError(
            f"this {type(model).__name__} is data, not a fitted object; pass the model that was "
            "fitted on it"
        )
    if isinstance(model, str | PurePath):
        return UnsupportedModelError(
            f"{str(model)!r} is a string, not a fitted object; register a model file in SQL: "
            f"CREATE MODEL m FROM '{model}'"
        )
    if path.startswith(PYTHON):
        estimator = any(c.__name__ == "Estimator" for c in type(model).__mro__)
        return unfitted(model) if estimator else not_covered(path, str(getattr(model, "uid", "")))
    why = INSTEAD if path == PYFUNC else UNSUPPORTED.get(path)
    if why is not None:
        return UnsupportedModelError(f"sqlml does not import {type(model).__name__}: {why}")
    bases = [
        c.__name__
        for c in type(model).__mro__[1:]
        if f"{c.__module__}.{c.__qualname__}" in IMPORTERS.keys() | COMPOSITES.keys()
    ]
    hint = (
        f"; it is a subclass of {bases[0]}, and a subclass may compute something else: "
        f"convert it to a plain {bases[0]}, or say what it does in SQL with sqlml.register_step"
        if bases
        else "; if it is a step of your own, say what it does in SQL with "
        f"sqlml.register_step({type(model).__name__}, sql=..); or replace it by a step that is "
        "covered (docs/operators.md lists them), do its work in the query and fit the model on "
        "the result, or convert the model to ONNX (skl2onnx, torch.onnx)"
    )
    return UnsupportedModelError(f"sqlml does not import {path}{hint}")


_DATA = frozenset(("numpy.ndarray", "builtins.list", "builtins.tuple"))
"""Classes of data, besides frames and tables, that a user may pass instead of a model."""


def _names(schema: Schema, inputs: Sequence[str] | Mapping[str, str] | None) -> tuple[str, ...]:
    if isinstance(inputs, str | bytes):
        raise ConfigError(
            f"inputs must be a list of names, not a string: write inputs=[{inputs!r}]"
        )
    given = None if inputs is None else tuple(inputs)
    unnamed = schema.names is None and not schema.default_names
    if given is None and unnamed and schema.count == ANY_COUNT:
        raise ConfigError(
            "this model takes any columns and records none; name those that feed it: "
            "inputs=['a', ...], or INPUT (a DOUBLE, ...) in CREATE MODEL; or let the first step "
            "record them when it is fitted (feature_names_in_)"
        )
    if given is None:
        numbered = (f"x{i}" for i in range(schema.count))
        names = schema.names or schema.default_names or tuple(numbered)
    else:
        if schema.count not in (len(given), ANY_COUNT):
            raise ConfigError(
                f"inputs must name the {schema.count} columns that the model was fitted on, but "
                f"names {len(given)}"
            )
        if schema.names and sorted(given) == sorted(schema.names):
            if given != schema.names:
                raise ConfigError(
                    "inputs names the model's own columns in another order: "
                    f"{', '.join(schema.names)}"
                )
            given = schema.names
        names = given
    folded = [fold(n) for n in names]
    zero = next((n for n in names if "\0" in n), None)
    if zero is not None:
        raise ConfigError(f"invalid feature name {zero!r}: it contains a NUL character")
    if len(set(folded)) != len(folded):
        twice = next(n for n in names if folded.count(fold(n)) > 1)
        raise ConfigError(
            f"two features are called {twice!r} when upper and lower case are the same, as in "
            "SQL; rename them with inputs="
        )
    return names


_NUMBERS = (
    "BOOLEAN BOOL TINYINT SMALLINT INTEGER INT BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT "
    "UHUGEINT FLOAT REAL FLOAT4 DOUBLE FLOAT8 DECIMAL NUMERIC"
).split()
_FEEDS: Mapping[str, tuple[Kind, ...]] = MappingProxyType(
    {
        **dict.fromkeys(_NUMBERS, ("number",)),
        **dict.fromkeys("VARCHAR TEXT STRING CHAR ENUM".split(), ("string",)),
        **dict.fromkeys(("DATE", "TIMESTAMP", "DATETIME"), (DATETIME,)),
        **dict.fromkeys(("MAP", "STRUCT"), ("map",)),
        "JSON": ("list", "map", "pairs"),
        "]": ("list", "pairs"),
    }
)
"""SQL type, or its end for lists -> the kinds of features that it may feed."""


def _check_kinds(features: tuple[Feature, ...], inputs: Mapping[str, str]) -> None:
    for feature in features:
        declared = inputs[feature.name].upper().strip()
        kinds = _FEEDS.get("]" if declared.endswith("]") else declared.split("(")[0].strip())
        if kinds is None:
            raise ConfigError(
                f"input {feature.name!r} has type {inputs[feature.name]!r}; features are numeric "
                "(DOUBLE, BIGINT, BOOLEAN, DECIMAL ..), VARCHAR, DATE, TIMESTAMP, lists, MAP or "
                "STRUCT"
            )
        if feature.kind != "any" and feature.kind not in kinds:
            raise ConfigError(
                f"input {feature.name!r} is declared {declared}, but the model reads it as "
                f"{_READ.get(feature.kind, feature.kind)}"
            )


_READ: Mapping[str, str] = MappingProxyType(
    {
        "number": "a number",
        "string": "a string",
        DATETIME: "a date or timestamp",
        "list": "a list (VARCHAR[], BIGINT[] ..)",
        "map": "a map (MAP(VARCHAR, DOUBLE), STRUCT(..))",
        "pairs": "a list of pairs (STRUCT(name VARCHAR, value DOUBLE)[])",
    }
)
