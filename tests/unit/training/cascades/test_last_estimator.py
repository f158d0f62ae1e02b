"""The last estimator of a model, and the blocks of columns that it reads."""

from __future__ import annotations

import pytest

from sqlml.importers.registry import import_model
from sqlml.training.cascades.last_estimator import find_last_estimator
from tests.unit.training.cascades.models import MODELS, fitted

BLOCKS = {
    "texts": [{"t"}, {"t"}, {"c"}, {"x"}, {"y"}, {"z"}],
    "net": [{"t"}, {"t"}, {"c"}, {"x"}, {"y"}, {"z"}],
    "scaled": [{"x"}, {"y"}, {"z"}],
    "components": [{"x"}, {"y"}, {"z"}],
    "boosted": [{"x"}, {"y"}, {"z"}],
    "stack": [{"x", "y", "z"}] * 2,
    "vote": [{"x"}, {"y"}, {"z"}],
}


@pytest.mark.parametrize("name", MODELS)
def test_blocks_are_what_is_computed_together(name: str) -> None:
    program = import_model(fitted(name)).program
    last = find_last_estimator(program)
    assert sorted(map(sorted, (block.inputs for block in last.blocks))) == sorted(
        map(sorted, BLOCKS[name])
    )
    width = sum(program.nodes[i].type.width for i in last.values)
    places = [place for block in last.blocks for place in block.columns]
    assert sorted(places) == list(range(width))


def test_a_stack_is_told_apart_by_its_members() -> None:
    program = import_model(fitted("stack")).program
    blocks = find_last_estimator(program).blocks
    forest, nearest = blocks[0], blocks[-1]
    ops = [{program.nodes[i].op for i in block.nodes} for block in (forest, nearest)]
    assert "tree_ensemble" in ops[0] - ops[1] and "nearest" in ops[1] - ops[0]


def test_a_vote_has_no_last_estimator_but_itself() -> None:
    program = import_model(fitted("vote")).program
    assert find_last_estimator(program).values == tuple(program.inputs.values())
