"""`import_model`, and the tables that map a class path to an importer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import PurePath
from typing import Any

from sqlml.errors import ConfigError, ProgramError, UnsupportedModelError
from sqlml.importers import category_encoders, feature_engine, imblearn, model_checks, statsmodels
from sqlml.importers.catboost import importer as catboost
from sqlml.importers.catboost.document import CatBoostModel
from sqlml.importers.expressions.sql_steps import find_registered, import_sql_step
from sqlml.importers.frame import (
    ANY_COUNT,
    Composite,
    Frame,
    Leaf,
    MissingValueRules,
    Outputs,
    Recurse,
    Schema,
)
from sqlml.importers.lightgbm import importer as lightgbm
from sqlml.importers.lightgbm.document import LightGBMModel
from sqlml.importers.mlflow_folder import PYFUNC, PYFUNC_ADVICE
from sqlml.importers.onnx import importer as onnx
from sqlml.importers.onnx.document import OnnxModel
from sqlml.importers.sklearn import estimator_table as sklearn
from sqlml.importers.sklearn.meta.compose import find_dict_separator
from sqlml.importers.spark_ml import importer as spark_ml
from sqlml.importers.spark_ml.pipeline_stages import PYTHON, SparkModel, make_unsupported_error
from sqlml.importers.sqlml_file import StoredModel
from sqlml.importers.torch import importer as torch
from sqlml.importers.torch import wrapped_modules
from sqlml.importers.xgboost import importer as xgboost
from sqlml.importers.xgboost.document import XGBoostModel
from sqlml.ir.builder import Builder
from sqlml.ir.damaged_file import READING_ERRORS
from sqlml.ir.ops import verify
from sqlml.ir.program import Program
from sqlml.ir.torch_archive import ExportedModule
from sqlml.types import DATETIME, Feature, Kind, fold

IMPORTERS: Mapping[str, Leaf] = {
    **sklearn.IMPORTERS,
    **xgboost.IMPORTERS,
    **lightgbm.IMPORTERS,
    **catboost.IMPORTERS,
    **onnx.IMPORTERS,
    **torch.IMPORTERS,
    **wrapped_modules.IMPORTERS,
    **spark_ml.IMPORTERS,
    **statsmodels.IMPORTERS,
    **category_encoders.IMPORTERS,
    **feature_engine.IMPORTERS,
}
COMPOSITES: Mapping[str, Composite] = {
    **sklearn.COMPOSITES,
    **imblearn.COMPOSITES,
    **feature_engine.COMPOSITES,
}
SCHEMAS: Mapping[str, Callable[[Any], Schema]] = {
    **sklearn.SCHEMAS,
    **xgboost.SCHEMAS,
    **lightgbm.SCHEMAS,
    **catboost.SCHEMAS,
    **onnx.SCHEMAS,
    **torch.SCHEMAS,
    **wrapped_modules.SCHEMAS,
    **spark_ml.SCHEMAS,
    **imblearn.SCHEMAS,
    **statsmodels.SCHEMAS,
}
"""Maps class keys to functions that find the columns of a model without feature_names_in_."""
CLASS_KEYS: Mapping[type, str] = {
    XGBoostModel: xgboost.FILE,
    LightGBMModel: lightgbm.FILE,
    CatBoostModel: catboost.FILE,
    OnnxModel: onnx.FILE,
    ExportedModule: torch.FILE,
    SparkModel: spark_ml.FOLDER,
    Program: "sqlml program",
}
"""Maps sqlml's own classes to keys in `IMPORTERS`; databases store keys, so classes may move."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A Program that computes the predictions of a trained object, and facts about the object.

    The Program reads the features that predictions depend on; `features` has all training columns
    in order. `source` is the class path of the object, or its key in `CLASS_KEYS`. `library` names
    the libraries of the object and its parts, with versions. `is_named` is true if the fitted
    object or the user gave the names, and `has_default_names` if the library did. `gaps` says how
    the library reads omitted values.
    """

    program: Program
    features: tuple[Feature, ...]
    source: str
    library: str
    is_named: bool
    gaps: MissingValueRules = MissingValueRules()
    has_default_names: bool = False


Inputs = Sequence[str] | Mapping[str, str]
"""The names of a model's columns in training order, or a mapping of the names to SQL types."""


def import_model(model: Any, inputs: Inputs | None = None) -> Imported:
    """Import `model`, which is an object of a known class, a Program or a StoredModel.

    `inputs` are the names of the training columns, in order. They are required only if the object
    was fitted without names and the library has no default names. Raise UnsupportedModelError if
    the object is not fitted or not supported, and ConfigError if `inputs` do not fit the model.
    """
    if isinstance(model, Program):
        model = StoredModel(model, model.features, find_class_key(model), library_version(model))
    if isinstance(model, StoredModel):
        return _import_stored(model, inputs)
    model = _to_known_class(model)
    class_key = _find_importer_key(model)
    if not (_is_known(class_key) or find_registered(model)):
        raise _make_unknown_class_error(model)
    schema = _find_schema(model, class_key)
    if inputs is not None and class_key in torch.FAMILIES:
        schema = Schema(None, ANY_COUNT)  # The first layer only suggests a count.
    declared_types: Mapping[str, str] = {}
    if isinstance(inputs, Mapping):
        declared_types = inputs = schema.expand_arrays(inputs)
    names = _choose_names(schema, inputs)
    builder = Builder()
    class_keys: set[str] = set()
    outputs = _make_converter(class_keys)(model, Frame.raw(builder, names, declared_types))
    try:
        if isinstance(outputs, Frame):
            outputs = Outputs({"transform": outputs.to_value()})
        program = verify(builder.build(outputs.values, outputs.label_sets))
    except ProgramError as error:
        raise _make_program_error(model, error) from error
    kind_by_input = {f.name: f.kind for f in program.features}
    features = tuple(Feature(n, kind_by_input.get(n, "any")) for n in names)
    if isinstance(inputs, Mapping):
        _check_kinds(features, inputs)
        features = tuple(replace(f, is_boolean=_is_boolean(f, inputs)) for f in features)
    is_named = schema.names is not None or inputs is not None
    has_default_names = not is_named and schema.default_names is not None
    library = _describe_libraries(model, class_keys)
    gaps = _describe_gaps(model, class_key, class_keys)
    return Imported(program, features, class_key, library, is_named, gaps, has_default_names)


def import_onto(model: Any, frame: Frame) -> Frame | Outputs:
    """Import a model that reads the columns of `frame`; add the operators to `frame.builder`."""
    return _make_converter(set())(model, frame)


def _describe_gaps(model: Any, class_key: str, class_keys: Set[str]) -> MissingValueRules:
    """Describe how a model reads omitted values; `class_keys` has the keys of all parts."""
    empty_cell: float | None = 0.0
    # If only a part is an XGBoost model, the cells that a sparse matrix omits are ambiguous.
    if not class_keys.isdisjoint(xgboost.IMPORTERS):
        empty_cell = float("nan") if class_key in xgboost.IMPORTERS else None
    reads_blanks = not class_keys.isdisjoint(lightgbm.IMPORTERS)
    return MissingValueRules(empty_cell, find_dict_separator(model), reads_blanks)


def _import_stored(model: StoredModel, inputs: Inputs | None) -> Imported:
    columns = tuple(feature.name for feature in model.features)
    model_checks.check_model(model.program)
    if _choose_names(Schema(columns, len(columns)), inputs) != columns:
        raise ConfigError(f"a stored model keeps the names of its columns: {', '.join(columns)}")
    if isinstance(inputs, Mapping):
        _check_kinds(model.features, inputs)
    return Imported(model.program, model.features, model.source, model.library, True)


_DAMAGE_ERRORS: tuple[type[Exception], ...] = (*READING_ERRORS, AssertionError, MemoryError)
"""Errors that importers raise for an object with missing attributes or unexpected values."""


def _make_program_error(model: Any, error: ProgramError) -> UnsupportedModelError:
    return UnsupportedModelError(f"{type(model).__name__} cannot be imported: {error}")


def _make_damaged_model_error(model: Any, error: BaseException) -> UnsupportedModelError:
    library = _find_package(model)
    return UnsupportedModelError(
        f"this {type(model).__name__} is not in the state in which its library's fit leaves it "
        f"({type(error).__name__}: {error}): it is damaged, only partly fitted, or comes from "
        f"another version of {library}; fit it again. If {library} can predict with it as it is, "
        "the fault is sqlml's: please report this message"
    )


def _find_schema(model: Any, class_key: str) -> Schema:
    try:
        schema = SCHEMAS.get(class_key, read_sklearn_schema)(model)
        is_unnamed = schema.names is None and schema.default_names is None
        has_count = schema.count != ANY_COUNT
        if is_unnamed and has_count and class_key.startswith(("sklearn.", "imblearn.")):
            # These are the names that scikit-learn's get_feature_names_out uses.
            return replace(schema, default_names=tuple(f"x{i}" for i in range(schema.count)))
        return schema
    except UnsupportedModelError:
        step = _find_unsupported_step(model)
        if step is None:
            raise
        raise _make_unknown_class_error(step) from None
    except _DAMAGE_ERRORS as error:
        raise _make_damaged_model_error(model, error) from error


def _find_unsupported_step(model: Any) -> Any:
    pairs = [*getattr(model, "steps", []), *getattr(model, "transformer_list", [])]
    steps = [pair[1] for pair in pairs if isinstance(pair, tuple) and len(pair) > 1]
    for step in [*steps, getattr(model, "best_estimator_", None)]:
        if step is None or isinstance(step, str):
            continue
        step = _to_known_class(step)
        if not (_is_known(_find_importer_key(step)) or find_registered(step)):
            return step
        inner_step = _find_unsupported_step(step)
        if inner_step is not None:
            return inner_step
    return None


def _to_known_class(model: Any) -> Any:
    return model if find_registered(model) else model_checks.to_known_class(model, _is_known)


def _is_known(class_key: str) -> bool:
    return class_key in IMPORTERS or class_key in COMPOSITES


def find_class_key(model: Any) -> str:
    """Return the key of a model's class: the value in `CLASS_KEYS`, or the dotted path."""
    cls = type(model)
    return CLASS_KEYS.get(cls, f"{cls.__module__}.{cls.__qualname__}")


def _find_importer_key(model: Any) -> str:
    """Return the path of a base class in `torch.FAMILIES`, otherwise the class key."""
    bases = (f"{c.__module__}.{c.__qualname__}" for c in type(model).__mro__)
    return next((path for path in bases if path in torch.FAMILIES), find_class_key(model))


def _find_package(model: Any) -> str:
    return re.split("[. ]", _find_importer_key(model))[0]


_PYPI_NAMES = {"imblearn": "imbalanced-learn", "sklearn": "scikit-learn", "xgboost": "xgboost-cpu"}
"""Maps a package to the distribution on PyPI if the names differ."""


def library_version(model: Any) -> str:
    """Return the library of a model and the version, for example "sklearn 1.9.1"."""
    written_by = getattr(model, "written_by", None)
    if isinstance(written_by, str):  # A model file states which library wrote it.
        return written_by
    return _find_installed_version(_find_package(model))


def _find_installed_version(package: str) -> str:
    for name in (package, _PYPI_NAMES.get(package, package)):
        with suppress(metadata.PackageNotFoundError):
            return f"{package} {metadata.version(name)}"
    return package


def _describe_libraries(model: Any, class_keys: Set[str]) -> str:
    packages = {key.partition(".")[0] for key in class_keys if key in IMPORTERS and " " not in key}
    other_packages = sorted(packages - {_find_package(model)})
    return ", ".join([library_version(model), *map(_find_installed_version, other_packages)])


def read_sklearn_schema(model: Any) -> Schema:
    if (schema := Schema.from_model(model)) is not None:
        return schema
    if find_registered(model):
        return Schema(None, ANY_COUNT)
    raise model_checks.make_missing_columns_error(model)


def _make_converter(imported_keys: set[str]) -> Recurse:
    """Make a function that imports an object and adds all class keys to `imported_keys`."""

    def convert(model: Any, frame: Frame) -> Frame | Outputs:
        model = _to_known_class(model)
        class_key = _find_importer_key(model)
        imported_keys.add(class_key)
        registration = find_registered(model)
        try:
            if registration is not None:
                return import_sql_step(model, frame, registration)
            if class_key in COMPOSITES:
                return COMPOSITES[class_key](model, frame, convert)
            if class_key in IMPORTERS:
                return IMPORTERS[class_key](model, frame)
        except ProgramError as error:
            raise _make_program_error(model, error) from error
        except _DAMAGE_ERRORS as error:
            raise _make_damaged_model_error(model, error) from error
        raise _make_unknown_class_error(model)

    return convert


def _make_unknown_class_error(model: Any) -> UnsupportedModelError:
    class_key = find_class_key(model)
    if model is None:
        return UnsupportedModelError("None is not a model; pass the fitted object itself")
    if isinstance(model, type):
        return UnsupportedModelError(
            f"{model.__name__} is a class, not a fitted object; create one and fit it: "
            f"model = {model.__name__}(...)"
            + ("; model.fit(X, y)" if hasattr(model, "fit") else "")
        )
    data_classes = ("numpy.ndarray", "builtins.list", "builtins.tuple")
    if class_key in data_classes or class_key.startswith(("pandas.", "polars.", "pyarrow.")):
        return UnsupportedModelError(
            f"this {type(model).__name__} is data, not a fitted object; pass the model that was "
            "fitted on it"
        )
    if isinstance(model, str | PurePath):
        return UnsupportedModelError(
            f"{str(model)!r} is a string, not a fitted object; register a model file in SQL: "
            f"CREATE MODEL m FROM '{model}'"
        )
    if class_key.startswith(PYTHON):
        if any(c.__name__ == "Estimator" for c in type(model).__mro__):
            return model_checks.make_unfitted_error(model)
        return make_unsupported_error(class_key, str(getattr(model, "uid", "")))
    reason = PYFUNC_ADVICE if class_key == PYFUNC else sklearn.UNSUPPORTED.get(class_key)
    if reason is not None:
        return UnsupportedModelError(f"sqlml does not import {type(model).__name__}: {reason}")
    classes = type(model).__mro__[1:]
    base_names = [c.__name__ for c in classes if _is_known(f"{c.__module__}.{c.__qualname__}")]
    hint = (
        f"; it is a subclass of {base_names[0]}, and a subclass may compute something else: "
        f"convert it to a plain {base_names[0]}, or write its SQL with sqlml.register_step"
        if base_names
        else "; if it is a step of your own, write its SQL with "
        f"sqlml.register_step({type(model).__name__}, sql=...); or replace it by a supported step "
        "(docs/operators.md lists them), do its work in the query and fit the model on "
        "the result, or convert the model to ONNX (skl2onnx, torch.onnx)"
    )
    return UnsupportedModelError(f"sqlml does not import {class_key}{hint}")


def _choose_names(schema: Schema, inputs: Inputs | None) -> tuple[str, ...]:
    if isinstance(inputs, str | bytes):
        raise ConfigError(
            f"inputs must be a list of names, not a string: write inputs=[{inputs!r}]"
        )
    is_unnamed = schema.names is None and not schema.default_names
    if inputs is None and is_unnamed and schema.count == ANY_COUNT:
        raise ConfigError(
            "this model takes any columns and records none; name those that feed it: "
            "inputs=['a', ...], or INPUT (a DOUBLE, ...) in CREATE MODEL; or let the first step "
            "record them when it is fitted (feature_names_in_)"
        )
    if inputs is None:
        default_names = (f"x{i}" for i in range(schema.count))
        names = schema.names or schema.default_names or tuple(default_names)
    else:
        names = tuple(inputs)
        if schema.count not in (len(names), ANY_COUNT):
            raise ConfigError(
                f"inputs must name the {schema.count} columns that the model was fitted on, but "
                f"names {len(names)}"
            )
        if schema.names and names != schema.names and sorted(names) == sorted(schema.names):
            raise ConfigError(
                f"inputs names the model's own columns in another order: {', '.join(schema.names)}"
            )
    _check_names(names)
    return names


def _check_names(names: tuple[str, ...]) -> None:
    counts = Counter(map(fold, names))
    for name in names:
        if "\0" in name:
            raise ConfigError(f"invalid feature name {name!r}: it contains a NUL character")
        if counts[fold(name)] > 1:
            raise ConfigError(
                f"two features are called {name!r} if upper and lower case are the same, as in "
                "SQL; rename them with inputs="
            )


_NUMERIC_TYPES = (
    "BOOLEAN BOOL TINYINT SMALLINT INTEGER INT BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT "
    "UHUGEINT FLOAT REAL FLOAT4 DOUBLE FLOAT8 DECIMAL NUMERIC"
).split()
_KINDS_BY_TYPE: Mapping[str, tuple[Kind, ...]] = {
    **dict.fromkeys(_NUMERIC_TYPES, ("number",)),
    **dict.fromkeys("VARCHAR TEXT STRING CHAR ENUM".split(), ("string",)),
    **dict.fromkeys(("DATE", "TIMESTAMP", "DATETIME"), (DATETIME,)),
    **dict.fromkeys(("MAP", "STRUCT"), ("map",)),
    "JSON": ("list", "map", "pairs"),
    "]": ("list", "pairs"),
}
"""Maps a SQL type, or "]" for any list type, to the feature kinds that it can have."""


def _check_kinds(features: tuple[Feature, ...], inputs: Mapping[str, str]) -> None:
    for feature in features:
        declared_type = inputs[feature.name].upper().strip()
        type_name = "]" if declared_type.endswith("]") else declared_type.split("(")[0].strip()
        allowed_kinds = _KINDS_BY_TYPE.get(type_name)
        if allowed_kinds is None:
            raise ConfigError(
                f"input {feature.name!r} has type {inputs[feature.name]!r}; features are numeric "
                "(DOUBLE, BIGINT, BOOLEAN, DECIMAL, ...), VARCHAR, DATE, TIMESTAMP, lists, MAP or "
                "STRUCT"
            )
        if feature.kind != "any" and feature.kind not in allowed_kinds:
            raise ConfigError(
                f"input {feature.name!r} is declared {declared_type}, but the model reads it as "
                f"{_KIND_NAMES.get(feature.kind, feature.kind)}"
            )


def _is_boolean(feature: Feature, inputs: Mapping[str, str]) -> bool:
    declared_type = inputs[feature.name].upper().strip()
    return feature.kind == "number" and declared_type in ("BOOLEAN", "BOOL", "LOGICAL")


_KIND_NAMES: Mapping[str, str] = {
    "number": "a number",
    "string": "a string",
    DATETIME: "a date or timestamp",
    "list": "a list (VARCHAR[], BIGINT[], ...)",
    "map": "a map (MAP(VARCHAR, DOUBLE), STRUCT(...))",
    "pairs": "a list of pairs (STRUCT(name VARCHAR, value DOUBLE)[])",
}
