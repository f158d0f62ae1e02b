"""The SQL reference has everything that the code has: a section, its options, and an example.

The examples run in tests/e2e/test_documents.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import sqlml
from sqlml.parsing.model_statements import CHANGES, EXPORT_FORMATS, FORMATS
from sqlml.parsing.parse import parse
from sqlml.parsing.statements import AlterModel, Explain, SetOption, Statement
from sqlml.planner.program import choose
from sqlml.planner.syntax.call_options import CALL_OPTIONS, FUNCTIONS, STAGED_FUNCTIONS
from sqlml.planner.syntax.preprocessing import SIGNATURES as PREPROCESSORS
from sqlml.planner.syntax.table_forms import FORMS
from sqlml.statements import dispatch
from sqlml.statements.model_options import AT_CREATION, STORED
from sqlml.tools import cli
from sqlml.tools.shell.output_modes import MODES
from sqlml.training.model_types import MODEL_TYPES
from sqlml.training.options.sqlml_options import ALIASES, TRAINING_OPTIONS
from tests.support.documents import DOCS, ROOT, blocks, sections, text_of

STATEMENTS, FUNCTIONS_PAGE, TABLE_FUNCTIONS, PREPROCESSING, OPTIONS = (
    text_of(DOCS / f"sql-{name}.md")
    for name in ("statements", "functions", "table-functions", "preprocessing", "options")
)


def in_tables(section: str) -> set[str]:
    """The names in the first column of a section's tables."""
    cells = re.findall(r"^\| (`.*?) \|", section, flags=re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def examples(section: str) -> Iterator[Statement]:
    for block in blocks(section, "sql"):
        yield from parse(block.text)


def test_every_statement_has_an_example() -> None:
    shown: set[type] = set()
    for statement in examples(STATEMENTS):
        shown.add(type(statement))
        if isinstance(statement, AlterModel):
            shown.add(type(statement.change))
    assert {*dispatch.STATEMENTS, *dispatch.CHANGES, Explain, SetOption} <= shown


@pytest.mark.parametrize("words", CHANGES)
def test_every_change_of_a_model_has_a_section(words: str) -> None:
    section = sections(STATEMENTS)[f"ALTER MODEL ... {words}"]
    assert blocks(section, "text") and blocks(section, "sql")
    found = [one for one in examples(section) if isinstance(one, AlterModel)]
    assert found and all(words in " ".join(one.sql.upper().split()) for one in found)


def test_every_section_of_a_statement_has_its_syntax_and_an_example() -> None:
    for title, section in sections(STATEMENTS).items():
        if title not in ("Statements", "ALTER MODEL"):
            assert blocks(section, "text") and blocks(section, "sql"), title


def test_formats_of_files_are_listed() -> None:
    table = text_of(DOCS / "register.md")
    assert [f for f in FORMATS if f != "AUTO" and f"| {f} |" not in table] == []
    section = sections(STATEMENTS)["EXPORT MODEL"]
    assert [f for f in EXPORT_FORMATS if f not in section] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_a_section(name: str) -> None:
    section = sections(FUNCTIONS_PAGE)[name]
    assert any(f"{name}(" in block.text for block in blocks(section, "sql"))
    assert f"{name}(model, columns" in section


def test_options_of_calls_are_those_of_the_code() -> None:
    parts = sections(FUNCTIONS_PAGE)
    options_of = {
        name: {n.lower() for n, option in CALL_OPTIONS.items() if name in option.functions}
        for name in FUNCTIONS
    }
    explains = options_of["explain"] | {"class"}
    others = {n.lower() for n in CALL_OPTIONS} - explains - options_of["predict_interval"]
    assert in_tables(parts["explain"]) == explains
    assert in_tables(parts["Functions"]) == others
    assert in_tables(parts["predict_interval"]) == options_of["predict_interval"]
    assert options_of["predict_set"] == options_of["predict_interval"] == {"coverage"}
    assert in_tables(parts["predict_proba"]) == {"class"}
    assert all("[trees := n]" in parts[name] for name in STAGED_FUNCTIONS)


@pytest.mark.parametrize("name", FORMS)
def test_every_table_function_has_a_section_with_its_options(name: str) -> None:
    section = sections(TABLE_FUNCTIONS)[f"ml_{name}"]
    assert any(f"ml_{name}(" in block.text for block in blocks(section, "sql"))
    assert in_tables(section) == set(FORMS[name].options)
    assert f"ml_{name}({'MODEL' if FORMS[name].has_model else 'rows'}" in section


@pytest.mark.parametrize("name", PREPROCESSORS)
def test_every_preprocessing_function_has_a_section(name: str) -> None:
    section = sections(PREPROCESSING)[name]
    form = PREPROCESSORS[name]
    (syntax, *_) = blocks(section, "text")
    assert syntax.text.startswith(f"{name}(")
    assert ("OVER ()" in syntax.text) == ("OVER ()" in form.example)
    assert any(f"{name}(" in block.text for block in blocks(PREPROCESSING, "sql"))


def test_options_of_models_are_those_of_the_code() -> None:
    parts = sections(OPTIONS)
    assert in_tables(parts["Options of a model"]) == set(STORED)
    assert in_tables(parts["Options while a model is created"]) == set(AT_CREATION)


def test_options_of_training_are_those_of_the_code() -> None:
    told = in_tables(sections(OPTIONS)["Options of training"])
    of_libraries = {"monotone_constraints", "monotonic_cst", "objective"}
    assert told - {"hparam_range", "hparam_candidates"} - of_libraries == set(
        TRAINING_OPTIONS
    ) | set(ALIASES)
    types = text_of(DOCS / "train.md")
    assert [name for name in MODEL_TYPES if f"`{name}`" not in types] == []


def test_settings_and_their_values_are_those_of_the_code() -> None:
    section = sections(OPTIONS)["Settings of a session"]
    assert in_tables(section) == {f"sqlml_{name}" for name in choose.SETTINGS}
    for value in (
        *choose.SETTINGS["route"],
        *choose.DEVICES,
        *choose.BACKEND_NAMES,
        *choose.STRATEGIES,
    ):
        assert f"`{value}`" in OPTIONS, value


def test_environment_variables_are_those_of_the_code() -> None:
    told = {n for n in in_tables(sections(OPTIONS)["Environment variables"]) if "SQLML" in n}
    sources = [*(ROOT / "sqlml").rglob("*.py"), *(ROOT / "udfs").rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in (*sources, ROOT / "hatch_build.py")]
    read = {name for text in texts for name in re.findall(r"\bSQLML_[A-Z]\w*", text)}
    assert told == {name for name in read if not name.endswith("_")}


def test_options_and_commands_of_the_command_line_are_those_of_the_code() -> None:
    parts = sections(text_of(DOCS / "shell.md"))
    told = set(re.findall(r"^\| `sqlml (\w+)", parts["Other commands of sqlml"], re.MULTILINE))
    assert told == set(cli.COMMANDS)
    known = {o for action in cli.make_parser()._actions for o in action.option_strings}
    modes = {f"{dashes}{name}" for name in MODES for dashes in ("-", "--")}
    written = {o for o in known - modes if not o.startswith("-h")} - {"--noheader", "--help"}
    assert [option for option in written if f"`{option}" not in parts["Options"]] == []
    assert [name for name in MODES if f"| `{name}` |" not in parts["Output modes"]] == []


def test_public_names_are_in_the_python_api() -> None:
    page = text_of(DOCS / "python.md")
    shown = {path.rpartition(".")[2] for path in re.findall(r"^::: ([\w.]+)", page, re.MULTILINE)}
    assert set(sqlml.__all__) <= shown
