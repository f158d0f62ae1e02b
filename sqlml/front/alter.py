"""`alter`: the grammar of ALTER MODEL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlml.front.artifact import artifact
from sqlml.front.cursor import Cursor
from sqlml.front.statements import (
    AddVersion,
    AlterModel,
    Change,
    DropVersion,
    ModelName,
    Rename,
    Reserved,
    ResetOptions,
    SetAlias,
    SetDefault,
    SetOptions,
    SetTags,
    Statement,
    UnsetAlias,
    UnsetTags,
)
from sqlml.types import fold


def alter(c: Cursor) -> Statement | None:
    """ALTER MODEL [IF EXISTS] m ..; None where another thing is altered.

    Raises:
        ParseError: the change is none of `CHANGES`, or is written otherwise.
    """
    if not c.is_about_a_model():
        return None
    c.at += 2
    if_exists = c.accept("IF", "EXISTS")
    place = c.at
    name = c.model_version()
    for words, rule in CHANGES.items():
        if not c.accept(*words.split()):
            continue
        if name.names_a_version:
            if rule not in (_set_options, _reset_options):
                c.at = place
                raise c.fail(f"{words} is about a whole model; name it without a version")
        change = rule(c, name)
        if change is None:
            return Reserved(c.sql, "ALTER MODEL .. ADD VERSION .. AS SELECT (training)", name)
        c.end()
        return AlterModel(c.sql, name, change, if_exists)
    raise c.fail(f"expected {', '.join(CHANGES)}")


def _add_version(c: Cursor, name: ModelName) -> Change | None:
    token = c.peek()
    number = None
    if token is not None and token.kind == "number":
        number = c.number("the number of the version")
    found = artifact(c)
    return None if found is None else AddVersion(found, number)


def _drop_version(c: Cursor, name: ModelName) -> Change:
    return DropVersion(c.which(name))


def _set_default(c: Cursor, name: ModelName) -> Change:
    c.expect_symbol("=")
    return SetDefault(c.which(name))


def _set_alias(c: Cursor, name: ModelName) -> Change:
    alias = c.identifier("the name of an alias")
    c.expect_symbol("=")
    return SetAlias(alias, c.which(name))


def _unset_alias(c: Cursor, name: ModelName) -> Change:
    return UnsetAlias(c.identifier("the name of an alias"))


def _set_tags(c: Cursor, name: ModelName) -> Change:
    tags: dict[str, str] = {}
    while not tags or c.symbol(","):
        tag = fold(c.identifier("the name of a tag"))
        if tag in tags:
            raise c.fail(f"tag {tag} is given twice")
        c.expect_symbol("=")
        tags[tag] = c.string("the value of a tag")
    return SetTags(MappingProxyType(tags))


def _unset_tags(c: Cursor, name: ModelName) -> Change:
    return UnsetTags(_names(c, "the name of a tag"))


def _set_options(c: Cursor, name: ModelName) -> Change:
    return SetOptions(c.options())


def _reset_options(c: Cursor, name: ModelName) -> Change:
    if c.peek() is None:
        return ResetOptions()
    c.expect_symbol("(")
    names = _names(c, "the name of an option")
    c.expect_symbol(")")
    return ResetOptions(tuple(fold(n) for n in names))


def _rename(c: Cursor, name: ModelName) -> Change:
    return Rename(c.identifier("the new name of the model"))


def _names(c: Cursor, what: str) -> tuple[str, ...]:
    names = [c.identifier(what)]
    while c.symbol(","):
        names.append(c.identifier(what))
    return tuple(names)


CHANGES: Mapping[str, Callable[[Cursor, ModelName], Change | None]] = MappingProxyType(
    {
        "ADD VERSION": _add_version,
        "DROP VERSION": _drop_version,
        "SET DEFAULT_VERSION": _set_default,
        "SET ALIAS": _set_alias,
        "UNSET ALIAS": _unset_alias,
        "SET TAG": _set_tags,
        "UNSET TAG": _unset_tags,
        "SET OPTIONS": _set_options,
        "RESET OPTIONS": _reset_options,
        "RENAME TO": _rename,
    }
)
"""The words after the model's name, and the rule of what follows them."""
