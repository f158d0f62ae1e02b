"""The constructor parameters that sqlml knows, per class of scikit-learn.

`parameters.txt` has a line for each class. A parameter that is not listed there came with another
version of scikit-learn, and may change what the model computes, so such a model is refused
(`fitted.check`) until the parameter has been reviewed.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

_TEXT = (files(__package__) / "parameters.txt").read_text("utf-8")

PARAMETERS: Mapping[str, str] = MappingProxyType(
    dict(line.split(": ", 1) for line in _TEXT.splitlines())
)
"""Class path -> the names of its parameters, separated by blanks."""
