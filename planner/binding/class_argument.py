"""`chosen_class`, `keyed_class`: the class that `class := ..` means, or a key of the MAP."""

from __future__ import annotations

from typing import Any

from sqlml.catalog.model import Model
from sqlml.errors import BindError
from sqlml.planner.program.result_sql import Chosen
from sqlml.planner.syntax.outline import Literal, ModelCall
from sqlml.planner.syntax.parameters import Parameters
from sqlml.types import Labels, list_classes


def chosen_class(call: ModelCall, model: Model, sql: str, given: Parameters) -> Chosen | None:
    """The class in `class := ..` as its index in each target; None when the call names none.

    Without it the model's own `positive_class` is meant, if it has one.
    """
    chosen = call.class_argument
    if chosen is None:
        positive = model.options.get("positive_class")
        if call.function not in ("predict_proba", "explain") or positive is None:
            return None
        return _places(model, positive, sql, call.span.start)
    place = chosen.span.start
    if not model.program.labels:
        raise BindError(f"model {model.name!r} has no classes", sql, place)
    value = given.literal(chosen)
    if value is None:
        raise BindError(
            "class := takes a literal or a parameter, since it decides what is computed",
            sql,
            place,
        )
    return _places(model, value[0], sql, place)


def keyed_class(call: ModelCall, model: Model) -> Chosen | None:
    """The class in `predict_proba(..)['yes']`: one number is computed, and no MAP is made.

    None where the key may mean anything else than one class of a MAP to the engine: it is not
    written as a label of its type is, it equals none (which gives NULL), or the result is a list.
    """
    labels = model.program.labels
    if call.key is None or call.class_argument is not None or len(labels) != 1:
        return None
    wanted = _key(call.key.literal, labels[0].kind)
    found = [i for i, label in enumerate(labels[0].values) if label == wanted]
    return (found[0],) if wanted is not None and len(found) == 1 else None


def _key(literal: Literal, kind: str) -> str | int | bool | None:
    """The value of a key that is written in the way of a kind of labels."""
    text = literal.text
    if kind == "string" and literal.kind == "string":
        return text
    if kind == "int64" and literal.kind == "number" and text.isascii() and text.isdigit():
        return -int(text) if literal.negative else int(text)
    if kind == "bool" and literal.kind == "word" and text != "NULL":
        return text == "TRUE"
    return None


def _places(model: Model, wanted: Any, sql: str, place: int) -> Chosen:
    """The place of a class among the labels of each target."""
    labels = model.program.labels
    found = tuple(index_of(known, wanted) for known in labels)
    if any(i is not None for i in found):
        return found
    all_known = dict.fromkeys(v for known in labels for v in known.values)
    known = list_classes(all_known)
    raise BindError(
        f"model {model.name!r} has no class {wanted!r}; its classes are {known}", sql, place
    )


def index_of(labels: Labels, wanted: Any) -> int | None:
    """The place of the label that `wanted` equals, or else spells ('1' is 1, 'true' True).

    Macros look for it in the same order (`model_sql/plain_macros.py`).
    """
    for same in (_is_equal, lambda a, b: spelled_class(a) == spelled_class(b), _is_spelled):
        for i, label in enumerate(labels.values):
            if same(label, wanted):
                return i
    return None


def _is_equal(label: Any, wanted: Any) -> bool:
    return isinstance(label, str) == isinstance(wanted, str) and bool(label == wanted)


def spelled_class(value: Any) -> str:
    """A class as `class := ..` takes it as a text.

    >>> spelled_class(True), spelled_class(3)
    ('true', '3')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def _is_spelled(label: Any, wanted: Any) -> bool:
    """A boolean in any case, an integer with or without a fraction."""
    if isinstance(label, bool) or isinstance(wanted, bool):
        return str(label).casefold() == str(wanted).casefold()
    return _digits(label) == _digits(wanted)


def _digits(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value)
