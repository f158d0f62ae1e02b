"""`Lookup`: codes of categories that are too many to be written into a query, from their texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sqlml.backends.base import Compiled
from sqlml.ir.utf8_column import Texts
from sqlml.passes.split import text_input
from sqlml.types import Array


@dataclass(frozen=True, slots=True)
class Lookup:
    """Completes the matrix of a batch.

    `compiled` makes `outputs`, (n, 1) codes each, of the texts `inputs`, which follow the `first`
    texts of a batch. Columns `given` of the matrix come from the engine, columns `found` are
    these outputs.
    """

    compiled: Compiled
    first: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    given: tuple[int, ...]
    found: tuple[int, ...]
    dtype: str

    def texts(self, texts: Mapping[str, Texts]) -> dict[str, Texts]:
        """Those of a batch's texts that are looked up, by the names of their columns."""
        places = range(self.first, self.first + len(self.inputs))
        return {name: texts[text_input(k)] for name, k in zip(self.inputs, places, strict=True)}

    def rest(self, texts: Mapping[str, Texts]) -> dict[str, Texts]:
        """The others, which the model itself reads."""
        return {name: texts[name] for name in map(text_input, range(self.first))}

    def completed(self, given: Array, texts: Mapping[str, Any]) -> Array:
        """The matrix (n, all) of `given` (n, columns) and the codes of `texts`."""
        codes = self.compiled.run(texts, self.outputs)
        made = np.empty((given.shape[0], len(self.given) + len(self.found)), self.dtype)
        made[:, self.given] = given[:, : len(self.given)]
        for place, output in zip(self.found, self.outputs, strict=True):
            made[:, place] = codes[output][:, 0]
        return made
