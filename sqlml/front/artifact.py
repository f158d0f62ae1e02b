"""`artifact`: the part of CREATE MODEL and ADD VERSION that says where a model comes from."""

from __future__ import annotations

from types import MappingProxyType

from sqlml.front.cursor import Cursor
from sqlml.front.statements import Artifact, Options

FORMATS = tuple("AUTO XGBOOST LIGHTGBM CATBOOST ONNX SKOPS PICKLE TORCH SPARK SQLML".split())


def artifact(c: Cursor) -> Artifact | None:
    """[INPUT ..] [OUTPUT ..] FROM 'path' ..; None where a query follows that is to be trained on.

    Raises:
        ParseError: it is written otherwise.
    """
    if c.word() in ("TRANSFORM", "AS"):
        return None
    inputs = c.schema() if c.accept("INPUT") else None
    output = c.schema() if c.accept("OUTPUT") else None
    if c.word() in ("OPTIONS", "WITH"):
        saved = c.at
        c.at += 1
        given = c.options()
        if c.word() == "AS":
            return None
        if not given:
            c.at = saved
        raise c.fail("expected FROM '<path>' before OPTIONS")
    if not (c.accept("FROM") or c.accept("USING")):
        raise c.fail("expected FROM '<path of a model file>'")
    source = c.string("the path of a model file")
    form, comment = "AUTO", None
    options: Options = MappingProxyType({})
    while c.peek() is not None:
        if c.accept("FORMAT"):
            form = c.identifier("a format").upper()
            if form not in FORMATS:
                c.at -= 1
                raise c.fail(f"unknown format {form}; there are {', '.join(FORMATS)}")
        elif c.accept("OPTIONS") or c.accept("WITH"):
            options = c.options()
        elif c.accept("COMMENT"):
            comment = c.string("a comment")
        else:
            if c.word() in ("INPUT", "OUTPUT"):
                raise c.fail(f"{c.word()} (..) goes before FROM")
            raise c.fail("expected FORMAT, OPTIONS (..), COMMENT '..' or the end")
    return Artifact(source, inputs, output, form, options, comment)
