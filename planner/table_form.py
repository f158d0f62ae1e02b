"""`written_out`: the table form of a call, as the subquery that it stands for.

::

    FROM ml_predict(MODEL m, TABLE t)
    FROM (SELECT *, predict('m', *) AS predicted_label,
                 predict_proba('m', *) AS predicted_label_probs FROM t)

So all is as with the calls themselves: how columns are bound and pruned, that both share one
evaluation, and that the engine computes only what the query around reads. A label is called
`label`, as in BigQuery, where OUTPUT of CREATE MODEL does not say its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sqlml.catalog.model import Model
from sqlml.dialects import Dialect
from sqlml.errors import BindError, SqlmlError, UnknownModelError
from sqlml.front.lexer import Token, closing, split_commas, tokenize
from sqlml.planner.blocks import clause_at
from sqlml.types import fold

_CLAUSES_OF_VALUES = frozenset("SELECT WHERE GROUP HAVING QUALIFY ORDER LIMIT".split())


@dataclass(frozen=True, slots=True)
class TableForm:
    """`ml_predict(MODEL .., ..)` or `ML.PREDICT(..)` at tokens[start:end].

    `model` and `rows` are token ranges: of the reference behind MODEL, and of the second argument.
    """

    start: int
    end: int
    model: tuple[int, int]
    rows: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some text, and where it comes from: of the user's own text the place where it begins.

    What we wrote ourselves comes from one place, the form's.
    """

    text: str
    place: int
    own: bool


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """A statement without table forms, which knows its places in the user's `statement`."""

    statement: str
    pieces: tuple[_Piece, ...]

    def added(self, offset: int) -> bool:
        """Whether a place of `sql` is in what we wrote: there a call adds its column to rows."""
        for piece in self.pieces:
            if offset < len(piece.text):
                return not piece.own
            offset -= len(piece.text)
        return False

    @property
    def sql(self) -> str:
        """The text of the statement."""
        return "".join(p.text for p in self.pieces)

    def located(self, error: SqlmlError) -> SqlmlError:
        """The error with its place in the user's text."""
        if error.offset is None or error.sql != self.sql:
            return error
        return error.at(self.statement, self._place(error.offset))

    def _place(self, offset: int) -> int:
        for piece in self.pieces:
            if offset < len(piece.text):
                return piece.place + (offset if piece.own else 0)
            offset -= len(piece.text)
        return len(self.statement)


def has_table_form(tokens: Sequence[Token]) -> bool:
    """Whether a statement has a table form, well written or not."""
    return any(_begins(tokens, i) for i in range(len(tokens)))


def written_out(
    sql: str, tokens: Sequence[Token], model: Callable[[str], Model], dialect: Dialect
) -> WrittenOut | None:
    """The statement with a subquery in place of each table form; None where it has none.

    Raises:
        BindError: a form that is not written as sql.md says, or a model that predicts nothing.
        UnknownModelError: there is no such model.
    """
    if not has_table_form(tokens):
        return None
    calls = partial(_calls, sql, tokens, model, dialect)
    return WrittenOut(sql, tuple(_pieces(sql, tokens, 0, len(tokens), 0, len(sql), calls)))


def refuse_hidden(
    sql: str, tokens: Sequence[Token], place: int, columns: Iterable[str], dialect: Dialect
) -> None:
    """Refuse rows with a column of the name that the call at token `place` gives to its answer.

    Of two columns of one name the engine reads the first: the rows' own, and not the new one.

    Raises:
        BindError: it names the column, and how to leave it out.
    """
    close = closing(tokens, place + 1)
    added = tokens[close + 2].text if close is not None else ""
    taken = next((c for c in columns if fold(c) == fold(added)), None)
    if taken is not None:
        others = dialect.star_without([dialect.quote_name(taken)])
        raise BindError(
            f"the rows have a column {taken!r} already, and would hide the new one; leave it out, "
            f"as in ml_predict(MODEL m, (SELECT {others} FROM ..)), or give it another name there",
            sql,
            tokens[place].start,
        )


def parsable(sql: str) -> str:
    """The statement with the plain rows in place of each table form, which any engine can parse."""
    tokens = tokenize(sql)
    if not has_table_form(tokens):
        return sql
    pieces = _pieces(sql, tokens, 0, len(tokens), 0, len(sql), lambda form: [])
    return "".join(p.text for p in pieces)


def table_forms(
    sql: str, tokens: Sequence[Token], first: int = 0, last: int | None = None
) -> Iterator[TableForm]:
    """The table forms of tokens[first:last], but for those in the rows of others.

    Raises:
        BindError: one is not written as sql.md says.
    """
    i, last = first, len(tokens) if last is None else last
    while i < last:
        if _begins(tokens, i):
            form = _form(sql, tokens, i)
            yield form
            i = form.end
        else:
            i += 1


def _pieces(
    sql: str,
    tokens: Sequence[Token],
    first: int,
    last: int,
    start: int,
    end: int,
    calls: Callable[[TableForm], list[str]],
) -> Iterator[_Piece]:
    """sql[start:end], whose tokens are tokens[first:last], with the forms in it written out.

    `calls` are what is added to the rows of a form.
    """
    for form in table_forms(sql, tokens, first, last):
        place = tokens[form.start].start
        if clause_at(tokens, form.start) in _CLAUSES_OF_VALUES:
            raise BindError(
                "the table form gives rows, and stands in FROM; one value a row is "
                "predict('model', *)",
                sql,
                place,
            )
        yield _Piece(sql[start:place], start, True)
        yield _Piece(f"(SELECT {', '.join(['*', *calls(form)])} FROM ", place, False)
        a, b = form.rows
        yield from _pieces(sql, tokens, a, b, tokens[a].start, tokens[b - 1].end, calls)
        yield _Piece(")", place, False)
        start = tokens[form.end - 1].end
    yield _Piece(sql[start:end], start, True)


def _begins(tokens: Sequence[Token], i: int) -> bool:
    """Whether a table form begins at token i; functions of that name take no MODEL."""
    if tokens[i].upper == "ML":
        dotted = i + 2 < len(tokens) and tokens[i + 1].is_symbol(".")
        i = i + 2 if dotted and tokens[i + 2].upper == "PREDICT" else len(tokens)
    elif tokens[i].upper != "ML_PREDICT":
        return False
    if i + 3 >= len(tokens) or not tokens[i + 1].is_symbol("("):
        return False
    named = tokens[i + 3].is_identifier or tokens[i + 3].kind in ("string", "param")
    return tokens[i + 2].upper == "MODEL" and named


def _form(sql: str, tokens: Sequence[Token], start: int) -> TableForm:
    opening = start + (3 if tokens[start].upper == "ML" else 1)
    close = closing(tokens, opening)
    if close is None:
        raise BindError("this bracket is not closed", sql, tokens[opening].start)
    items = split_commas(tokens, opening + 1, close)
    if len(items) != 2 or items[1][0] == items[1][1]:
        raise BindError(
            "the table form takes a model and its rows, as in ml_predict(MODEL m, TABLE t)",
            sql,
            tokens[start].start,
        )
    (model, model_end), (a, b) = items
    if tokens[a].upper == "TABLE" and b - a > 1:
        a += 1
    elif not (tokens[a].is_symbol("(") and closing(tokens, a) == b - 1):
        raise BindError(
            "the rows of the table form are TABLE and a name, or a query in brackets",
            sql,
            tokens[a].start,
        )
    return TableForm(start, close + 1, (model + 1, model_end), (a, b))


def _calls(
    sql: str,
    tokens: Sequence[Token],
    model: Callable[[str], Model],
    dialect: Dialect,
    form: TableForm,
) -> list[str]:
    """What is added to the rows: the calls that the model has an answer to."""
    reference = _reference(sql, tokens, form)
    place = tokens[form.model[0]].start
    try:
        found = model(reference)
    except UnknownModelError as error:
        raise UnknownModelError(error.message, sql, place) from None
    outputs = found.program.outputs
    if "label" not in outputs:
        raise BindError(
            f"the table form gives predictions, and model {reference!r} predicts nothing; use "
            "predict_score(..) or transform(..)",
            sql,
            place,
        )
    written, quote_name = dialect.quote_string(reference), dialect.quote_name
    label = f"predicted_{found.options.get('output', 'label')}"
    calls = [f"predict({written}, *) AS {quote_name(label)}"]
    if "proba" in outputs:
        calls.append(f"predict_proba({written}, *) AS {quote_name(f'{label}_probs')}")
    return calls


def _reference(sql: str, tokens: Sequence[Token], form: TableForm) -> str:
    """The reference to a model: m, db.m, "m", m@last, m/3 or all that as a string."""
    a, b = form.model
    if b - a == 1 and tokens[a].kind == "string":
        return tokens[a].text
    if any(t.kind == "param" for t in tokens[a:b]):
        raise BindError(
            "the table form names its model; a parameter may stand in predict(?, *)",
            sql,
            tokens[a].start,
        )
    for i in range(a + 1, b):
        if not (tokens[i - 1].kind == "symbol" or tokens[i].kind == "symbol"):
            raise BindError(
                f"the table form takes one model; expected a comma before {tokens[i].text!r}",
                sql,
                tokens[i].start,
            )
    return "".join(t.text for t in tokens[a:b])
