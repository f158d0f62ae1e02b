"""`Expression`: one number of a row as SQL, and `Bindings`, which give long ones a name.

What a Program computes once SQL would compute each time that it is written. So a value that is
written several times is bound first, as `WITH` does for queries and a lambda over a list of one
struct does inside an expression; in DuckDB, without the full names of its functions:
`list_transform([{'v1': a + b}], lambda row: row.v1 * row.v1)[1]`.

In here a missing number is NaN and never NULL, as in a Program. The engine says that NaN equals
itself and is greater than all numbers, which IEEE and numpy deny; so what may be NaN carries a
mark, and comparisons look at it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from sqlml.backends.sql.literals import number
from sqlml.dialects import DUCKDB, Dialect
from sqlml.ir.trees import Ensemble
from sqlml.types import Array

LONGEST_SUM = 400
"""Terms in a row: the engine refuses expressions that are nested 1000 deep."""


@dataclass(frozen=True, slots=True)
class Expression:
    """One number of a row.

    cheap: it may be written several times. nan: it may be NaN. raw: where given, the same but
    NULL or NaN where this is NaN; it costs less. category: of a code, the text that it stands for,
    as an error has it.
    """

    sql: str
    cheap: bool = False
    nan: bool = True
    raw: str | None = None
    category: str | None = None


Value = tuple[Expression, ...]
"""The columns of a value."""


def constants(values: Array, dtype: str, dialect: Dialect = DUCKDB) -> Value:
    """Numbers of one dtype as literals, in C order.

    >>> constants(np.array([0.5]), "float64")[0].sql
    "'0.5'::DOUBLE"
    """
    return tuple(
        Expression(number(v, dtype, dialect), cheap=True, nan=bool(v != v))
        for v in np.asarray(values).ravel().tolist()
    )


Walked = Callable[[Ensemble, Value], str]
"""Trees and the columns that they test -> SQL for a list of the sums of their leaves."""


@dataclass(slots=True)
class Bindings:
    """What has a name: expressions, in the order in which they were bound.

    They become stages. Each is a lambda over the list of one struct that the stage before it has
    made, with what is still to be read; nested lambdas would be simpler, but the engine takes
    exponential time to bind those. `row` is the lambda's parameter. `refused` are the conditions
    under which the model refuses a row, where no value fails by itself. `walked`, where given,
    makes a list of the sums of trees that are no part of the text.
    """

    row: str = "sqlml"
    dialect: Dialect = DUCKDB
    bound: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    walked: Walked | None = None

    def bind(self, value: Sequence[Expression]) -> Value:
        """Bind the value to a name, unless all of it is cheap. All of it has one type."""
        if all(e.cheap for e in value):
            return tuple(value)
        name = self.name(self.dialect.array([e.sql for e in value]))
        return tuple(
            Expression(self.dialect.at(name, k), cheap=True, nan=e.nan, category=e.category)
            for k, e in enumerate(value, 1)
        )

    def bind_conditions(self, value: Sequence[Expression]) -> Value:
        """Bind conditions."""
        return self.bind(value)

    def name(self, sql: str) -> str:
        """A name for what `sql` computes."""
        self.bound.append(sql)
        return self._read(len(self.bound))

    def total(self, terms: Sequence[str], dtype: str) -> str:
        """The sum of numbers of a dtype from left to right; of groups of them where they are very
        many.

        >>> from sqlml.dialects import SPARK
        >>> Bindings(dialect=SPARK).total(["a", "b", "c"], "float64")
        '(a + b + c)'
        """
        while len(terms) > LONGEST_SUM:
            groups = range(0, len(terms), LONGEST_SUM)
            terms = [self.dialect.total(terms[g : g + LONGEST_SUM]) for g in groups]
        return self.dialect.total(terms)

    def _read(self, number: int | str) -> str:
        return self.dialect.member(self.row, f"v{number}")

    def around(self, sql: str) -> str:
        """`sql`, which reads the names, as an expression without them."""
        if not self.bound:
            return sql
        texts = [*self.bound, sql]
        read = re.compile(re.escape(self._read("@")).replace("@", r"(\d+)\b"))
        reads = [{int(n) - 1 for n in read.findall(text)} for text in texts]
        stage: list[int] = []
        for needed in reads:
            stage.append(1 + max((stage[j] for j in needed), default=0))
        last = max(stage[:-1])
        stage[-1] = last + 1
        until = [
            max((stage[i] for i, r in enumerate(reads) if j in r), default=0)
            for j in range(len(self.bound))
        ]
        made = ""
        for s in range(1, last + 1):
            own = {j: texts[j] for j in range(len(self.bound)) if stage[j] == s}
            kept = [j for j in range(len(self.bound)) if stage[j] < s < until[j]]
            fields = {**{j: self._read(j + 1) for j in kept}, **own}
            struct = self.dialect.struct({f"v{j + 1}": text for j, text in fields.items()})
            each = partial(self.dialect.each, made, self.row)
            made = each(struct) if made else self.dialect.array([struct])
        return self.dialect.at(self.dialect.each(made, self.row, sql), 1)
