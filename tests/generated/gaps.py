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


_AMBIGUOUS = (
    r"^(AmbiguousColumnError|(BindError|BinderException).*(mbiguous|not found|is missing)"
    r"|ArityError.* but 1 are given)"  # a struct of names that cannot be bound is no struct
)

GAPS = (
    _gap(
        "4 (9)",
        "ON sees the tables of later joins",
        "SELECT x.id FROM t3 x JOIN t4 z ON x.id = z.id AND predict('tree', 1, g) <> 'no' "
        "JOIN t1 y ON x.id = y.id",
        "SELECT x.id FROM t3 x JOIN t4 z ON x.id = z.id AND tree_predict(1, g) <> 'no' "
        "JOIN t1 y ON x.id = y.id",
        r"ON .* JOIN ",
        _AMBIGUOUS,
    ),
    _gap(
        "4 (9)",
        "LATERAL sees relations to its right",
        "SELECT y.n FROM t4 x, LATERAL (SELECT predict('one', coalesce(h, 1)) AS n) y, t4 z",
        "SELECT y.n FROM t4 x, LATERAL (SELECT one_predict(coalesce(h, 1)) AS n) y, t4 z",
        r"(LATERAL|JOIN|,) \(SELECT",
        _AMBIGUOUS,
    ),
    _gap(
        "4 (9)",
        "RETURNING of DELETE .. USING and UPDATE .. FROM sees the other tables",
        "DELETE FROM d USING t1 x WHERE x.id = d.id RETURNING predict('one', coalesce(a, 1)) AS n",
        "DELETE FROM d USING t1 x WHERE x.id = d.id RETURNING one_predict(coalesce(a, 1)) AS n",
        r"(USING|FROM) .* RETURNING",
        _AMBIGUOUS,
    ),
    _gap(
        "4 (9)",
        "MERGE .. WHEN NOT MATCHED sees both tables",
        "MERGE INTO d USING t1 x ON d.id = x.id WHEN NOT MATCHED THEN INSERT (id, w) VALUES (x.id, predict('one', coalesce(a, 1)))",
        "MERGE INTO d USING t1 x ON d.id = x.id WHEN NOT MATCHED THEN INSERT (id, w) VALUES (x.id, one_predict(coalesce(a, 1)))",
        r"MERGE INTO .* NOT MATCHED",
        _AMBIGUOUS,
    ),
    _gap(
        "4 (9)",
        "ON CONFLICT DO UPDATE SET takes a bare name for that of both rows",
        "INSERT INTO d FROM d ON CONFLICT (id) DO UPDATE SET w = predict('tree', excluded.a, g) = 'no'",
        "INSERT INTO d FROM d ON CONFLICT (id) DO UPDATE SET w = tree_predict(excluded.a, g) = 'no'",
        r"ON CONFLICT .* DO UPDATE",
        _AMBIGUOUS,
    ),
    _gap(
        "5 (9)",
        "a PIVOT with a call in USING inside CREATE TABLE AS",
        "CREATE TEMP TABLE p AS PIVOT t2 ON s IN ('red') USING max(predict('tree', a, g))",
        "CREATE TEMP TABLE p AS PIVOT t2 ON s IN ('red') USING max(tree_predict(a, g))",
        r"CREATE .* PIVOT .* USING",
        r"^BindError.*(FROM clause is missing|needs a FROM clause)",
    ),
    _gap(
        "5 (9)",
        "a call in the ON of an ANTI JOIN before a JOIN .. USING",
        "SELECT id FROM t1 x ANTI JOIN t2 y ON x.id = y.id AND predict('one', y.a) > 9 JOIN t4 USING (id)",
        "SELECT id FROM t1 x ANTI JOIN t2 y ON x.id = y.id AND one_predict(y.a) > 9 JOIN t4 USING (id)",
        r"(ANTI|SEMI) JOIN .* ON ",
        _AMBIGUOUS,
    ),
    _gap(
        "5 (9)",
        "a star in the ON of an ANTI JOIN means the left side alone",
        "SELECT x.id FROM t4 x ANTI JOIN t2 y ON x.id = y.id AND predict('tree', *) = 'low'",
        "SELECT x.id FROM t4 x ANTI JOIN t2 y ON x.id = y.id AND tree_predict(a, g) = 'low'",
        r"(ANTI|SEMI) JOIN .* ON .*\*",
        r"^MissingColumnError",
    ),
    _gap(
        "new",
        "a constant that is a key of GROUPING SETS is taken for a category of the model",
        "SELECT 'red' AS k, predict('words', max(s), 0.5) AS p FROM t1 GROUP BY GROUPING SETS ((k), ())",
        "SELECT 'red' AS k, words_predict(max(s), 0.5) AS p FROM t1 GROUP BY GROUPING SETS ((k), ())",
        r"GROUPING SETS|ROLLUP|CUBE",
        r"Map keys can not be NULL",
    ),
    _gap(
        "new",
        "a filter of constants is not folded when it calls a model, and runs behind one that is pushed to it",
        "SELECT id FROM (SELECT id, s FROM t2 UNION ALL SELECT id, CASE WHEN predict('lr', *) = 1 THEN s ELSE 'no' END AS s FROM t1 WHERE list_sum(list_transform([0, 2, 5], lambda u: predict_proba('tree', g => 0, a => u, class := 'it''s'))) > 1.2345678) x WHERE s LIKE '%e%'",
        "SELECT id FROM (SELECT id, s FROM t2 UNION ALL SELECT id, CASE WHEN lr_predict(a, b) = 1 THEN s ELSE 'no' END AS s FROM t1 WHERE list_sum(list_transform([0, 2, 5], lambda u: tree_predict_proba_its(u, 0))) > 1.2345678) x WHERE s LIKE '%e%'",
        r"UNION ALL .* WHERE",
        r"^MissingValueError.* in place of rows",
    ),
)
