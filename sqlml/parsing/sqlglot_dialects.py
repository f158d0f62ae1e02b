"""sqlglot's DuckDB and Spark dialects, extended with model calls, model statements and spans.

Function calls are kept as written, because sqlglot would check their arguments and reorder some.
Syntax that sqlglot misreads, and that may occur next to a model, is corrected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.duckdb import DuckDBParser
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from sqlml.parsing import places
from sqlml.parsing.model_statements import ModelStatements
from sqlml.parsing.statement_parts import token_types

_MODEL_FUNCTIONS = frozenset(
    (
        "PREDICT PREDICT_PROBA PREDICT_SCORE PREDICT_INTERVAL PREDICT_SET PREDICT_LEAF TRANSFORM"
    ).split()
)
"""Scalar functions that accept MODEL m as the first argument."""

_TABLE_NAMES = token_types("VAR IDENTIFIER STRING PLACEHOLDER PARAMETER")
_NOT_AFTER_MODEL = token_types("COMMA L_PAREN R_PAREN")
"""Tokens that cannot follow the keyword MODEL. Before them, MODEL is the name of a column."""

_QUERY_WORDS = frozenset({"SELECT", "FROM", "WITH", "VALUES"})
_EXPLAIN_WORDS = ("ANALYZE", "EXTENDED", "FORMATTED", "COST", "CODEGEN")


def _to_identifier(token: Token) -> exp.Identifier:
    identifier = exp.Identifier(this=token.text, quoted=token.token_type == TokenType.IDENTIFIER)
    return identifier.update_positions(token)


def _parse_placeholder(parser: Any) -> exp.Expr:
    token = parser._prev
    placeholder: exp.Expr = parser.expression(exp.Placeholder(this=token.text), token)
    return placeholder


class _Rules(ModelStatements):
    """Rules for both dialects, in which the engines differ from sqlglot."""

    def _parse_function_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        is_call = self._next.token_type == TokenType.L_PAREN
        if is_call and self._curr.token_type == TokenType.VAR:
            name = self._curr.text.upper()
            follows_dot = self._prev is not None and self._prev.token_type == TokenType.DOT
            follows_ml = follows_dot and self._tokens[self._index - 2].text.upper() == "ML"
            if name in _MODEL_FUNCTIONS or name.startswith("ML_") or follows_ml:
                return self._parse_model_call()
        return super()._parse_function_call(*args, **kwargs)

    def _parse_model_call(self: Any) -> Any:
        token = self._curr
        self._advance(2)
        names_model = self._curr and self._curr.text.upper() == "MODEL" and self._next
        if names_model and self._next.token_type not in _NOT_AFTER_MODEL:
            arguments = [self._parse_model_name()]
            if self._match(TokenType.COMMA):
                arguments += self._parse_csv(self._parse_model_argument)
        else:
            arguments = self._parse_csv(self._parse_model_argument)
        self._match_r_paren()
        call = self.expression(exp.Anonymous(this=token.text, expressions=arguments), token)
        return self._parse_window(call)

    def _parse_model_argument(self: Any) -> Any:
        first_token = self._index
        return places.mark_span(self, self._parse_any_argument(), first_token)

    def _parse_model_name(self: Any) -> Any:
        """Parse MODEL m, where the name m may consist of any number of tokens."""
        first_token = self._index + 1
        while self._curr and self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            self._advance()
        name = self._find_sql(self._tokens[first_token], self._prev)
        return places.mark_span(self, places.ModelName(this=name), first_token)

    def _parse_any_argument(self: Any) -> Any:
        """Parse `TABLE t`, `name := value`, or an expression."""
        next_type = self._next.token_type
        if self._curr.token_type == TokenType.TABLE and next_type in _TABLE_NAMES:
            self._advance()
            return self._parse_table()
        if next_type in (TokenType.COLON_EQ, TokenType.FARROW):
            name = _to_identifier(self._curr)
            self._advance(2)
            return exp.PropertyEQ(this=name, expression=self._parse_value_of_argument())
        return self._parse_value_of_argument()

    def _parse_value_of_argument(self: Any) -> Any:
        return self._parse_lambda(alias=True)

    def _parse_engine_command(self: Any) -> Any:
        """Parse the statement inside PREPARE or EXPLAIN, which sqlglot would keep as text."""
        word = self._prev.text.upper()
        if word == "PREPARE":
            self._parse_id_var()
            if self._match(TokenType.L_PAREN):
                self._skip_brackets()
            if not self._match(TokenType.ALIAS):
                self.raise_error("Expected AS")
        elif word == "EXPLAIN":
            opens_bracket = self._curr.token_type == TokenType.L_PAREN
            if opens_bracket and self._next.text.upper() not in _QUERY_WORDS:
                self._advance()
                self._skip_brackets()
            self._match_texts(_EXPLAIN_WORDS)
        else:
            return self._parse_as_command(self._prev)
        return places.WrappedStatement(this=self._parse_statement(), kind=word)

    def _parse_cube_or_rollup(self: Any, with_prefix: bool = False) -> Any:
        """Parse CUBE and ROLLUP over arbitrary expressions, such as comparisons."""
        if with_prefix or not self._match_set((TokenType.CUBE, TokenType.ROLLUP)):
            return super()._parse_cube_or_rollup(with_prefix)
        cls = exp.Cube if self._prev.token_type == TokenType.CUBE else exp.Rollup
        return self.expression(cls(expressions=self._parse_wrapped_csv(self._parse_disjunction)))

    def _parse_grouping_set(self: Any) -> Any:
        nested = self._parse_grouping_sets() or self._parse_cube_or_rollup()
        return nested or self._parse_disjunction()

    def _skip_brackets(self: Any) -> None:
        depth = 1
        while self._curr and depth:
            token_type = self._curr.token_type
            depth += (token_type == TokenType.L_PAREN) - (token_type == TokenType.R_PAREN)
            self._advance()

    def _warn_unsupported(self) -> None:
        """Do not warn, because the engine may support syntax that sqlglot does not support."""


_QUERY_TOKENS = token_types("PIVOT UNPIVOT DESCRIBE")
_PLACEHOLDERS = {TokenType.PLACEHOLDER: _parse_placeholder}
_COMMANDS = {
    TokenType.COMMAND: _Rules._parse_engine_command,
    TokenType.EXECUTE: lambda self: self._parse_as_command(self._prev),
}


class _DuckDBRules(_Rules, DuckDBParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    SUBQUERY_TOKENS = DuckDBParser.SUBQUERY_TOKENS | _QUERY_TOKENS | {TokenType.VALUES}
    FUNC_TOKENS = DuckDBParser.FUNC_TOKENS | {TokenType.PERCENT}
    PLACEHOLDER_PARSERS: ClassVar[Any] = {**DuckDBParser.PLACEHOLDER_PARSERS, **_PLACEHOLDERS}
    STATEMENT_PARSERS: ClassVar[Any] = {**DuckDBParser.STATEMENT_PARSERS, **_COMMANDS}
    CONFLICT_ACTIONS: ClassVar[dict[str, Any]] = {**DuckDBParser.CONFLICT_ACTIONS, "ERROR": ()}

    def _parse_var_from_options(self: Any, options: Any, raise_unmatched: bool = True) -> Any:
        """Parse MERGE ... THEN ERROR, with or without a message."""
        parsed = super()._parse_var_from_options(options, raise_unmatched)
        if options is self.CONFLICT_ACTIONS and self._prev.text.upper() == "ERROR":
            end_types = (TokenType.WHEN, TokenType.RETURNING)
            has_no_message = not self._curr or self._curr.token_type in end_types
            return parsed if has_no_message else exp.Paren(this=self._parse_disjunction())
        return parsed

    def _parse_types(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Parse a type, but not `type<...>`: in DuckDB, `::INTEGER < 3` is a comparison."""
        if kwargs.get("check_func") and self._next.token_type == TokenType.LT:
            return None
        return super()._parse_types(*args, **kwargs)

    def _parse_escape(self: Any, this: Any) -> Any:
        if not self._match(TokenType.ESCAPE):
            return this
        return self.expression(exp.Escape(this=this, expression=self._parse_bitwise()))

    def _parse_function_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Parse a function call, or return None if `map` or `if` is the name of a column."""
        opens_bracket = self._next.token_type in (TokenType.L_PAREN, TokenType.L_BRACE)
        if self._curr.text.upper() in ("MAP", "IF") and not opens_bracket:
            return None
        return super()._parse_function_call(*args, **kwargs)

    def _parse_create(self: Any) -> Any:
        """Parse CREATE, including CREATE TYPE ... AS ENUM (query), which sqlglot lacks."""
        first_token = self._index
        self._match_text_seq("OR", "REPLACE")
        self._match_texts(("TEMP", "TEMPORARY"))
        if self._match_text_seq("TYPE"):
            self._match_text_seq("IF", "NOT", "EXISTS")
            self._parse_table_parts()
            if self._match(TokenType.ALIAS) and self._match_text_seq("ENUM"):
                if self._match(TokenType.L_PAREN) and self._curr.text.upper() in _QUERY_WORDS:
                    query = self._parse_select()
                    self._match_r_paren()
                    return places.OtherType(this=query)
        self._retreat(first_token)
        return super()._parse_create()

    def _parse_function_properties(self: Any) -> Any:
        """Parse TABLE after AS in a macro. Any other word begins the body of the macro."""
        returns_table = self._curr.token_type == TokenType.TABLE
        return super()._parse_function_properties() if returns_table else None

    def _parse_function_parameter(self: Any) -> Any:
        """Parse a macro parameter, which may have a default (`n := 3`)."""
        parameter = super()._parse_function_parameter()
        if parameter is not None and self._match(TokenType.COLON_EQ):
            return exp.PropertyEQ(this=parameter, expression=self._parse_assignment())
        return parameter

    def _parse_from(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Parse FROM, where joins may follow `(VALUES ...) t` even without SELECT."""
        from_clause = super()._parse_from(*args, **kwargs)
        if from_clause is not None and isinstance(from_clause.this, exp.Values):
            joins = list(self._parse_joins())
            if joins:
                from_clause.set("this", exp.Table(this=from_clause.this, joins=joins))
        return from_clause

    def _parse_insert_table(self: Any) -> Any:
        insert = super()._parse_insert_table()
        self._match_text_seq("BY", "POSITION")
        return insert

    def _is_table_query(self: Any) -> bool:
        return self._curr.token_type in _QUERY_TOKENS or super()._is_table_query()

    def _parse_select_query(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Parse PIVOT, UNPIVOT and DESCRIBE as queries, wherever a query is allowed."""
        if self._match_set((TokenType.PIVOT, TokenType.UNPIVOT)):
            return self._parse_simplified_pivot(self._prev.token_type == TokenType.UNPIVOT)
        if self._match(TokenType.DESCRIBE):
            return self._parse_describe()
        return super()._parse_select_query(*args, **kwargs)

    def _parse_simplified_pivot(self: Any, is_unpivot: bool | None = None) -> Any:
        """Parse PIVOT or UNPIVOT over arbitrary expressions, also with ORDER BY and LIMIT."""
        first_token = self._index - 1
        table = self._parse_table()
        on = self._parse_csv(self._parse_pivoted) if self._match(TokenType.ON) else None
        into = self._parse_unpivot_columns()
        using = self._parse_csv(self._parse_pivoted) if self._match(TokenType.USING) else None
        pivot = exp.Pivot(
            this=table,
            expressions=on,
            using=using,
            group=self._parse_group(),
            unpivot=is_unpivot,
            into=into,
        )
        query = self._parse_set_operations(places.mark_span(self, pivot, first_token))
        for key in ("order", "limit", "offset"):
            query.set(key, getattr(self, f"_parse_{key}")() or query.args.get(key))
        return places.mark_span(self, query, first_token)

    def _parse_pivoted(self: Any) -> Any:
        first_token = self._index
        return places.mark_span(self, self._parse_alias(self._parse_disjunction()), first_token)


class _SparkRules(_Rules, SparkParser):
    EXPLAIN_MODES = ("EXTENDED", "CODEGEN", "COST", "FORMATTED")
    SUPPORTS_TABLE_QUERY = True
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNC_TOKENS = SparkParser.FUNC_TOKENS | {TokenType.PERCENT}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        k: v for k, v in SparkParser.FUNCTION_PARSERS.items() if k != "TRANSFORM"
    }
    PLACEHOLDER_PARSERS: ClassVar[Any] = {**SparkParser.PLACEHOLDER_PARSERS, **_PLACEHOLDERS}
    STATEMENT_PARSERS: ClassVar[Any] = {**SparkParser.STATEMENT_PARSERS, **_COMMANDS}

    def _parse_value_of_argument(self: Any) -> Any:
        if self._curr.token_type != TokenType.L_BRACE:
            return super()._parse_value_of_argument()
        first_token = self._index
        return places.mark_span(
            self, self._parse_column_ops(self._parse_struct_literal()), first_token
        )

    def _parse_struct_literal(self: Any) -> Any:
        first_token = self._index
        self._advance()
        is_empty = self._curr.token_type == TokenType.R_BRACE
        entries = [] if is_empty else self._parse_csv(self._parse_struct_entry)
        if not self._match(TokenType.R_BRACE):
            self.raise_error("Expected }")
        return places.mark_span(self, exp.Struct(expressions=entries), first_token)

    def _parse_struct_entry(self: Any) -> Any:
        key = _to_identifier(self._curr)
        self._advance()
        if not self._match(TokenType.COLON):
            self.raise_error("Expected :")
        return exp.PropertyEQ(this=key, expression=self._parse_assignment())

    def _parse_table_hints(self: Any) -> None:
        """Skip `WITH (...)` after a table, which contains options for reading a file."""
        if self._match_pair(TokenType.WITH, TokenType.L_PAREN):
            self._skip_brackets()

    def _parse_insert(self: Any) -> Any:
        """Parse INSERT, including OVERWRITE [LOCAL] DIRECTORY ... USING ... OPTIONS (...)."""
        first_token = self._index
        self._match(TokenType.OVERWRITE)
        self._match_text_seq("LOCAL")
        if not self._match_text_seq("DIRECTORY"):
            self._retreat(first_token)
            return super()._parse_insert()
        self._match(TokenType.STRING)
        if self._match(TokenType.USING):
            self._advance()
        if self._match_text_seq("OPTIONS") and self._match(TokenType.L_PAREN):
            self._skip_brackets()
        return exp.Insert(expression=self._parse_select())

    def _parse_pipe_syntax_query(self: Any, query: Any) -> Any:
        steps = []
        while self._match(TokenType.PIPE_GT):
            first_token = self._index
            steps.append(places.mark_span(self, self._parse_step(), first_token))
        return places.PipedQuery(this=query, expressions=steps)

    def _parse_step(self: Any) -> exp.Expr:
        word = self._curr.text.upper().split()[0] if self._curr else ""
        rule = _STEP_RULES.get(word)
        if rule is not None:
            self._advance()
            return places.Step(this=word, **rule(self))
        if self._match_set(self.QUERY_MODIFIER_PARSERS, advance=False):
            _, modifier = self.QUERY_MODIFIER_PARSERS[self._curr.token_type](self)
            expressions = modifier if isinstance(modifier, list) else [modifier]
            return places.Step(this=word, expressions=expressions)
        if word == "TABLESAMPLE":
            return places.Step(this=word, expressions=[self._parse_table_sample()])
        if word in ("PIVOT", "UNPIVOT"):
            return places.Step(this=word, expressions=self._parse_pivots())
        join = self._parse_join()
        if join is None:
            self.raise_error(f"Unknown pipe step {word}")
        return places.Step(this="JOIN", expressions=[join])

    def _parse_step_items(self: Any) -> dict[str, Any]:
        self._match(TokenType.DISTINCT)
        expressions = self._parse_expressions()
        if self._match(TokenType.GROUP_BY):
            expressions += self._parse_expressions()
        return {"expressions": expressions}

    def _parse_step_operands(self: Any) -> dict[str, Any]:
        while self._match_texts(("ALL", "DISTINCT", "BY", "NAME")):
            pass
        return {"expressions": self._parse_csv(self._parse_select_or_expression)}


_STEP_RULES: Mapping[str, Any] = {
    **dict.fromkeys(
        ("SELECT", "EXTEND", "SET", "DROP", "AGGREGATE"), _SparkRules._parse_step_items
    ),
    **dict.fromkeys(("UNION", "EXCEPT", "INTERSECT", "MINUS"), _SparkRules._parse_step_operands),
    "AS": lambda self: {"alias": self._parse_id_var()},
}


_DROPPED_KEYWORDS = frozenset(
    "?:: APPLY LOCK PARTITIONED_BY REGEXP RLIKE STRAIGHT_JOIN UNCACHE XOR".split()
)
"""sqlglot keywords that DuckDB reads as names, or as two operators (`?::`)."""


class _DuckDB(DuckDB):
    INDEX_OFFSET = 0  # Do not change indices.
    Parser = places.make_span_parser(_DuckDBRules)  # type: ignore[assignment]

    class Tokenizer(DuckDB.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        BIT_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("b'", "'"), ("B'", "'")]
        HEX_STRINGS: ClassVar[list[str | tuple[str, str]]] = [("x'", "'"), ("X'", "'")]
        # Backticks quote names in Spark, and also in MODEL `m`.
        IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]
        KEYWORDS: ClassVar[dict[str, TokenType]] = {  # `?::` is a parameter and a cast.
            k: v for k, v in DuckDB.Tokenizer.KEYWORDS.items() if k not in _DROPPED_KEYWORDS
        }
        STRING_ESCAPES = ["'"]


class _Spark(Spark):
    INDEX_OFFSET = 0
    Parser = places.make_span_parser(_SparkRules)  # type: ignore[assignment]

    class Tokenizer(Spark.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()
        NUMERIC_LITERALS: ClassVar[dict[str, str]] = {}  # Read 1.5D as one number.
        KEYWORDS: ClassVar[dict[str, TokenType]] = {  # Read hints as comments.
            k: v for k, v in Spark.Tokenizer.KEYWORDS.items() if v != TokenType.HINT and k != "?::"
        }


DIALECTS: Mapping[str, Dialect] = {"duckdb": _DuckDB(), "spark": _Spark()}
"""Maps the name of a `sqlml.dialects.Dialect` to the dialect of sqlglot."""
