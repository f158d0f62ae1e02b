"""`Arguments`: what stands in the brackets of a call, from the tokens of the text."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

from sqlml.errors import BindError, ParseError
from sqlml.parsing.places import Span, overlaps
from sqlml.parsing.tokens import Token, Tokens, tokenize
from sqlml.planner.syntax.forms import QUERIES
from sqlml.planner.syntax.outline import (
    Argument,
    Key,
    Literal,
    ModelCall,
    ModelColumn,
    Parameter,
    Star,
)
from sqlml.planner.syntax.table_form import has_table_form
from sqlml.types import fold

# `call_options`: the named arguments of a call that are no features, as in `baseline := true`.
#
# In double quotes each of these names is a feature's.


@dataclass(frozen=True, slots=True)
class Named:
    """A named argument: it begins at token `begin`, and ends before `end`."""

    argument: Argument
    sql: str
    tokens: Tokens
    begin: int
    end: int
    function: str

    @property
    def name(self) -> str:
        """Its name, folded."""
        return fold(self.tokens[self.begin].text)

    def error(self, message: str) -> BindError:
        """An error about it, which says how a feature of the name is written."""
        hint = f'(a feature of that name is written "{self.name}" := ..)'
        return BindError(f"{message} {hint}", self.sql, self.argument.name_start)


@dataclass(frozen=True, slots=True)
class _Option:
    """What an option is of `ModelCall`, and how it is read; `explains`: only explain has it."""

    field: str
    read: Callable[[Named], Any]
    explains: bool = False


def _truth(named: Named) -> bool:
    value = named.argument.literal
    said = _TRUTHS.get(fold(value.text)) if value and value.kind == "word" else None
    if said is None:
        raise named.error(f"{named.name} := takes true or false")
    return said


_TRUTHS = MappingProxyType({"true": True, "false": False})


def _class(named: Named) -> Argument:
    if named.function not in ("predict_proba", "explain"):
        raise named.error(
            f"class := belongs to predict_proba and explain; {named.function} has no classes to "
            "choose from"
        )
    return named.argument


def _query(named: Named) -> Span:
    """The place of a query in brackets."""
    tokens, start, end = named.tokens, named.begin + 2, named.end
    in_brackets = tokens[start].is_symbol("(") and tokens.closing.get(start) == end - 1
    if any(token.kind == "param" for token in tokens[start:end]):
        raise named.error(f"the query of {named.name} := takes no parameters")
    if not in_brackets or tokens[start + 1].upper not in QUERIES:
        raise named.error(
            f"{named.name} := takes a query in brackets, as in {named.name} := (FROM t USING "
            "SAMPLE 100)"
        )
    return Span(tokens[start].start, tokens[end - 1].end)


def _whole_number(named: Named) -> int:
    value = named.argument.literal
    if value is None or value.negative or value.kind != "number" or not value.text.isdigit():
        raise named.error(f"{named.name} := takes a whole number")
    return int(value.text)


def _null_or_error(named: Named) -> bool:
    """Whether it says NULL."""
    value = named.argument.literal
    said = fold(value.text) if value is not None and value.kind == "string" else None
    if said not in ("null", "error"):
        raise named.error(f"{named.name} := takes 'error' or 'null'")
    return said == "null"


_OPTIONS: Mapping[str, _Option] = MappingProxyType(
    {
        "CLASS": _Option("class_argument", _class),
        "APPROXIMATE": _Option("approximate", _truth),
        "BASELINE": _Option("baseline", _truth, explains=True),
        "STANDARD_ERRORS": _Option("standard_errors", _truth, explains=True),
        "BACKGROUND": _Option("background", _query, explains=True),
        "PERMUTATIONS": _Option("permutations", _whole_number, explains=True),
    }
)

UNKNOWN_MODEL = "UNKNOWN_MODEL"
"""The option of a call whose rows name their models."""

_OF_COLUMNS = _Option("skips_unknown", _null_or_error)


def call_option(word: str, named: Named, by_column: bool) -> tuple[str, Any] | None:
    """The field of `ModelCall` and its value; None if the argument is a feature.

    Args:
        word: its name in capitals, "" in quotes. by_column: a column names the models.

    Raises:
        BindError: another value than it takes.
    """
    found = _OF_COLUMNS if by_column and word == UNKNOWN_MODEL else _OPTIONS.get(word)
    if found is None or (found.explains and named.function != "explain"):
        return None
    return found.field, found.read(named)


def check_together(options: Mapping[str, Any], sql: str, place: int) -> None:
    """Raise BindError for options that do not go together."""
    if options.get("baseline") and options.get("standard_errors"):
        raise BindError(
            "baseline := and standard_errors := do not go together: the baseline has no error",
            sql,
            place,
        )
    if "permutations" in options and "background" not in options:
        raise BindError(
            "permutations := goes with background := (query): nothing is estimated without",
            sql,
            place,
        )


FUNCTIONS = ("predict", "predict_proba", "predict_score", "transform", "explain")
"""The scalar functions that call a model."""

_STAR_CLAUSES = frozenset(
    {"EXCLUDE", "EXCEPT", "REPLACE", "RENAME", "LIKE", "ILIKE", "NOT", "GLOB", "SIMILAR"}
)

_SETS_OF_COLUMNS = frozenset({"LIKE", "ILIKE", "GLOB", "SIMILAR", "NOT"})
"""What may follow a star and does not go with EXCLUDE."""


def parameters_of(sql: str) -> tuple[Parameter, ...]:
    """The parameters of a text of DuckDB, which need not be one that sqlglot reads."""
    return Arguments(sql, tokenize(sql)).parameters


def seems_to_call(sql: Any, dialect: str = "duckdb") -> bool:
    """Whether a text has a call of a model, or what is meant for one, as far as its tokens tell."""
    try:
        return isinstance(sql, str) and without_calls(sql, dialect) is not None
    except ParseError:
        return False
    except BindError:
        return True


def without_calls(sql: str, dialect: str = "duckdb") -> str | None:
    """A text with NULL for each call of a model, as far as its tokens tell; None without a call.

    Raises:
        ParseError: its tokens cannot be told.
        BindError: an argument of a call that cannot be meant.
    """
    tokens = tokenize(sql, dialect)
    own = Arguments(sql, tokens)
    made, end, found = "", 0, False
    for k, token in enumerate(tokens[:-1]):
        name = fold(token.text) if token.kind == "word" else ""
        if token.start < end or name not in FUNCTIONS or not tokens[k + 1].is_symbol("("):
            continue
        place = Span(token.start, token.end)
        if (k and tokens[k - 1].is_symbol(".")) or own.of_call(name, place) is None:
            continue
        made += sql[end : token.start] + "NULL"
        end, found = own.call_at(token.start).end, True
    return made + sql[end:] if found or has_table_form(tokens) else None


@dataclass(frozen=True, slots=True)
class CallOfText:
    """A function's name before a bracket and one text; `qualified`: after a dot."""

    name: str
    text: str
    qualified: bool


def calls_of_a_text(sql: str) -> list[CallOfText]:
    """Calls of a text of DuckDB whose first argument is one string; none if it is not SQL."""
    try:
        tokens = tokenize(sql)
    except ParseError:
        return []
    return [
        CallOfText(name.text, model.text, k > 0 and tokens[k - 1].is_symbol("."))
        for k, (name, opening, model, after) in enumerate(
            zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False)
        )
        if name.is_identifier and opening.is_symbol("(") and model.kind == "string"
        if after.is_symbol(",") or after.is_symbol(")")
    ]


def words_of(sql: str) -> tuple[tuple[str, int, bool], ...]:
    """All identifiers of a text of DuckDB, folded: place, and whether it follows a dot."""
    tokens = tokenize(sql)
    return tuple(
        (fold(t.text), t.start, k > 0 and tokens[k - 1].is_symbol("."))
        for k, t in enumerate(tokens)
        if t.is_identifier
    )


class Arguments:
    """The arguments of the calls in one text."""

    def __init__(self, sql: str, tokens: Tokens) -> None:
        self._sql = sql
        self._tokens = tokens
        self._starts = [token.start for token in tokens]
        self._places = {start: i for i, start in enumerate(self._starts)}

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters of the text."""
        return tuple(self._parameter(t) for t in self._tokens if t.kind == "param")

    def call_at(self, start: int) -> Span:
        """From a function's name to its closing bracket."""
        place = self._places[start]
        close = self._tokens.closing.get(place + 1)
        assert close is not None, "the parser has seen it"
        return Span(start, self._tokens[close].end)

    def key_after(self, place: Span) -> Key | None:
        """The one literal in brackets that follows what stands at a place."""
        opening = bisect_left(self._starts, place.end)
        close = self._tokens.closing.get(opening)
        if close is None or not self._tokens[opening].is_symbol("["):
            return None
        literal = self._literal(opening + 1, close) if close > opening + 1 else None
        whole = Span(self._tokens[opening].start, self._tokens[close].end)
        return None if literal is None else Key(whole, literal)

    def of_call(self, function: str, place: Span) -> ModelCall | None:
        """A call by its own text; None if it names no model and so is a user's own function.

        Raises:
            BindError: an argument that makes no sense.
        """
        tokens, start = self._tokens, self._places[place.start]
        close = tokens.closing.get(start + 1)
        if close is None:
            return None
        items = tokens.split_commas(start + 2, close)
        if not items or tokens[start].kind != "word":
            return None
        (first, last), *rest = items
        model = self._model(first, last)
        if model is None:
            # A star is meant for us, since no function of the engine takes one; a struct may be.
            row = any(self._star(a, b) or self._fields(a, b) for a, b in rest if b > a)
            if last == first or not row:
                return None
            model = ModelColumn(Span(tokens[first].start, tokens[last - 1].end))
        arguments: list[Argument] = []
        options: dict[str, Any] = {}
        for begin, end in rest:
            if begin == end:
                raise BindError("an argument is empty", self._sql, tokens[min(end, close)].start)
            argument = self._argument(begin, end)
            word = "" if argument.name is None else tokens[begin].upper
            named = Named(argument, self._sql, tokens, begin, end, function)
            option = call_option(word, named, isinstance(model, ModelColumn))
            if option is None:
                arguments.append(argument)
                continue
            field, value = option
            if field in options:
                raise BindError(f"{named.name} := is given twice", self._sql, tokens[begin].start)
            options[field] = value
        check_together(options, self._sql, place.start)
        spelled = tuple(
            (a.name, "\0".join(t.kind[0] + t.text for t in self._within(a.span))) for a in arguments
        )
        words = frozenset(
            fold(t.text) for a in arguments for t in self._within(a.span) if t.is_identifier
        )
        whole = Span(tokens[first].start, tokens[last - 1].end)
        return ModelCall(function, place, model, whole, tuple(arguments), spelled, words, **options)

    def number(self, place: Span | None) -> Literal | Parameter | None:
        """The number or the parameter that stands at a place by itself."""
        inside = [] if place is None else self._within(place)
        if len(inside) != 1:
            return None
        if inside[0].kind == "param":
            return self._parameter(inside[0])
        return Literal("number", inside[0].text) if inside[0].kind == "number" else None

    def sign(self, start: int, end: int, text: str) -> Span | None:
        """The place of an operator between two characters."""
        inside = [t for t in self._within(Span(start, end)) if t.is_symbol(text)]
        return Span(inside[0].start, inside[0].end) if len(inside) == 1 else None

    def local(self, place: Span, names: frozenset[str]) -> tuple[Span, ...]:
        """The names at a place that are among `names`, with the fields after them (`x.a`)."""
        if not names:
            return ()
        tokens, found = self._tokens, []
        i = self._places[place.start]
        while i < len(tokens) and tokens[i].start < place.end:
            token, begin = tokens[i], i
            i += 1
            if not token.is_identifier or fold(token.text) not in names:
                continue
            called = i < len(tokens) and (tokens[i].is_symbol("(") or tokens[i].is_symbol(":="))
            if called or tokens[begin - 1].is_symbol("."):
                continue
            while i + 1 < len(tokens) and tokens[i].is_symbol(".") and tokens[i + 1].is_identifier:
                i += 2
            found.append(Span(token.start, tokens[i - 1].end))
        return tuple(found)

    def is_row(self, alias: str, place: Span, source: Span, calls: Sequence[Span]) -> bool:
        """Return whether a name may be written at a place as a value: the whole row as a struct.

        It is none before a dot. What stands in its source, or in the `outermost` calls, is looked
        at elsewhere.
        """
        tokens = self._tokens
        first = bisect_left(self._starts, place.start)
        for i in range(first, bisect_left(self._starts, place.end)):
            token = tokens[i]
            if not token.is_identifier or fold(token.text) != alias:
                continue
            own = Span(token.start, token.end)
            if source.holds(own) or overlaps(own, calls):
                continue
            after = i + 1 < len(tokens) and tokens[i + 1].is_symbol(".")
            if not after and not (i and tokens[i - 1].is_symbol(".")):
                return True
        return False

    def star_at(self, place: Span | None) -> tuple[Span, Span | None] | None:
        """A star, and the bracket that opens its list of columns to leave out.

        None if it picks columns in a way that excludes such a list.
        """
        tokens = self._tokens
        i = self._places[place.start] if place is not None else -1
        if i < 0 or not tokens[i].is_symbol("*"):
            return None
        mark = Span(tokens[i].start, tokens[i].end)
        following = tokens[i + 1].upper if i + 1 < len(tokens) else ""
        if following in _SETS_OF_COLUMNS:
            return None
        if following not in ("EXCLUDE", "EXCEPT"):
            return mark, None
        if i + 2 < len(tokens) and tokens[i + 2].is_symbol("("):
            return mark, Span(tokens[i + 2].start, tokens[i + 2].end)
        return None

    def _within(self, place: Span) -> Sequence[Token]:
        first = bisect_left(self._starts, place.start)
        return self._tokens[first : bisect_left(self._starts, place.end)]

    def _parameter(self, token: Token) -> Parameter:
        return Parameter(Span(token.start, token.end), token.text)

    def _model(self, start: int, end: int) -> str | Parameter | ModelColumn | None:
        token = self._tokens[start]
        if end - start == 1 and token.kind == "string":
            return token.text
        if end - start == 1 and token.kind == "param":
            return self._parameter(token)
        if end - start < 2 or token.upper != "MODEL":
            return None
        first = self._tokens[start + 1]
        if first.kind == "param" and end - start == 2:
            return self._parameter(first)
        if first.is_symbol("(") and self._tokens.closing.get(start + 1) == end - 1:
            return ModelColumn(Span(first.start, self._tokens[end - 1].end))
        named = first.is_identifier or first.kind == "string"
        return "".join(t.text for t in self._tokens[start + 1 : end]) if named else None

    def _argument(self, start: int, end: int) -> Argument:
        tokens = self._tokens
        name, begin = None, start
        if end - start > 2 and tokens[start].is_identifier:
            if tokens[start + 1].is_symbol(":=") or tokens[start + 1].is_symbol("=>"):
                name, begin = tokens[start].text, start + 2
        first = tokens[begin]
        return Argument(
            Span(first.start, tokens[end - 1].end),
            name,
            tokens[start].start,
            self._literal(begin, end),
            self._parameter(first) if first.kind == "param" and end - begin == 1 else None,
            None if name is not None else self._star(begin, end),
            self._fields(begin, end),
            self._column(begin, end),
            self._items(begin, end),
        )

    def _literal(self, start: int, end: int) -> Literal | None:
        token, negative = self._tokens[start], self._tokens[start].is_symbol("-")
        if end - start != 1 + negative:
            return None
        last = self._tokens[end - 1]
        if last.kind == "number":
            return Literal("number", last.text, negative)
        if negative:
            return None
        if token.kind == "string":
            return Literal("string", token.text)
        return Literal("word", token.upper) if token.upper in ("NULL", "TRUE", "FALSE") else None

    def _column(self, start: int, end: int) -> str | None:
        words = self._tokens[start:end]
        for k, word in enumerate(words):
            if not (word.is_identifier if k % 2 == 0 else word.is_symbol(".")):
                return None
        return fold(words[-1].text) if len(words) % 2 else None

    def _items(self, start: int, end: int) -> tuple[Argument, ...] | None:
        """The elements of `[a, b]` or `ARRAY[a, b]`; None for a comprehension."""
        tokens = self._tokens
        start += tokens[start].upper == "ARRAY" and end - start > 1
        if not tokens[start].is_symbol("[") or tokens.closing.get(start) != end - 1:
            return None
        if any(token.upper == "FOR" for token in tokens[start:end]):
            return None
        places = tokens.split_commas(start + 1, end - 1) if end - start > 2 else []
        return tuple(self._argument(a, b) for a, b in places)

    def _fields(self, start: int, end: int) -> tuple[tuple[str, Span], ...] | None:
        """The entries of `{'a': x, b: y}`."""
        tokens = self._tokens
        if not tokens[start].is_symbol("{") or tokens.closing.get(start) != end - 1:
            return None
        found = []
        for a, b in tokens.split_commas(start + 1, end - 1):
            if b - a < 3 or not tokens[a + 1].is_symbol(":"):
                return None
            if tokens[a].kind not in ("string", "word", "name"):
                return None
            found.append((tokens[a].text, Span(tokens[a + 2].start, tokens[b - 1].end)))
        return tuple(found)

    def _star(self, start: int, end: int) -> Star | None:
        tokens = self._tokens
        unpacked = tokens[start].is_symbol("*") and tokens[start + 1].upper == "COLUMNS"
        begin = start + unpacked
        at = begin
        while at + 1 < end and tokens[at].is_identifier and tokens[at + 1].is_symbol("."):
            at += 2
        columns = (
            tokens[at].upper == "COLUMNS"
            and at + 1 < end
            and tokens[at + 1].is_symbol("(")
            and tokens.closing.get(at + 1) == end - 1
        )
        plain = tokens[at].is_symbol("*") and (
            at + 1 == end or tokens[at + 1].upper in _STAR_CLAUSES
        )
        if not (columns or plain):
            return None
        return Star(
            Span(tokens[begin].start, tokens[end - 1].end),
            self._qualifier(begin, end),
            frozenset(
                fold(".".join(t.text for t in tokens[a:b] if t.is_identifier))
                for word in ("EXCLUDE", "EXCEPT")
                for a, b in self._listed(start, end, word)
            ),
            {
                fold(tokens[b - 1].text): Span(tokens[a].start, tokens[b - 3].end)
                for a, b in self._listed(start, end, "REPLACE")
            },
            {
                fold(tokens[b - 1].text): Span(tokens[b - 3].start, tokens[b - 3].end)
                for a, b in self._listed(start, end, "RENAME")
            },
        )

    def _qualifier(self, start: int, end: int) -> Span | None:
        """`t.` of `t.*`, `t.COLUMNS(..)` and `COLUMNS(t.*)`."""
        tokens = self._tokens
        if tokens[start].upper == "COLUMNS" and tokens[start + 1].is_symbol("("):
            start, end = start + 2, end - 1
        stop = start
        while stop + 1 < end and tokens[stop].is_identifier and tokens[stop + 1].is_symbol("."):
            stop += 2
        return Span(tokens[start].start, tokens[stop - 1].end) if stop > start else None

    def _listed(self, start: int, end: int, word: str) -> list[tuple[int, int]]:
        """Token ranges of the items in `* WORD (item, ..)`, or of the one without brackets."""
        tokens = self._tokens
        for k in range(start, end):
            if tokens[k].upper == word and k + 1 < end:
                if tokens[k + 1].is_symbol("("):
                    close = tokens.closing.get(k + 1)
                    return tokens.split_commas(k + 2, close) if close is not None else []
                return [(k + 1, end)]
        return []
