"""Known faults that the generated statements meet: delete the row of one that is mended."""

# ruff: noqa: E501 (templates, one a line)

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.generated.predictions import Difference


@dataclass(frozen=True, slots=True)
class Gap:
    """A fault: the issue's item, its text and twin, and how its like are recognised.

    `form`: what a text has that may fail so; `error`: what is said then.
    """

    item: str
    reason: str
    text: str
    twin: str
    form: re.Pattern[str]
    error: re.Pattern[str]

    def explains(self, difference: Difference) -> bool:
        return bool(self.form.search(difference.text) and self.error.search(difference.what))


def _gap(item: str, reason: str, text: str, twin: str, form: str, error: str) -> Gap:
    return Gap(item, reason, text, twin, re.compile(form), re.compile(error, re.DOTALL))


GAPS = (
    _gap(
        "DuckDB",
        "2.0.1 takes one row of a SEMI JOIN's right side before it filters this side",
        "SELECT u.id FROM t2 u SEMI JOIN t1 v ON 0 = u.a AND predict('tree', v.*) IN ('low') LEFT JOIN t1 w USING (id) WHERE coalesce(w.b, u.b) > -10",
        "SELECT u.id FROM t2 u SEMI JOIN t1 v ON 0 = u.a AND tree_predict(v.a, v.g) IN ('low') LEFT JOIN t1 w USING (id) WHERE coalesce(w.b, u.b) > -10",
        r"SEMI JOIN.* JOIN .*WHERE",
        r"^rows",
    ),
)
