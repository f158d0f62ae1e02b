"""What one seed runs: a query, or a change alone or in a transaction."""

from __future__ import annotations

from tests.generated.changes import ALL, CHANGING, Step
from tests.generated.dice import Dice
from tests.generated.queries import query


def script(dice: Dice) -> list[Step]:
    """The statements of a seed, in their order."""
    if dice.chance(0.75):
        dice.parameters_allowed = dice.chance(0.2)
        made = query(dice)
        return [Step(made.text, made.ordered, lazily=dice.chance(0.3))]
    steps = dice.pick(CHANGING)(dice)
    if dice.chance(0.5):
        return steps
    earlier = Step("INSERT INTO d (id) VALUES (-1)")  # must not be lost
    return [Step("BEGIN"), earlier, *steps, Step(ALL, ordered=True), Step("ROLLBACK")]
