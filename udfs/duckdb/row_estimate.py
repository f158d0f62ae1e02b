"""`top_cardinality`: how many rows DuckDB expects of a query, out of its plan in JSON."""

from __future__ import annotations

import json


def top_cardinality(plan: str) -> int | None:
    """The estimate of the top operator; None if it has none.

    Of several plans (SET explain_output = 'all') the last one, which is what would run.

    >>> top = '{"name": "PROJECTION", "extra_info": {"Estimated Cardinality": "500"}}'
    >>> top_cardinality(f'[{{}}]\\n[{top}]'), top_cardinality('[{"extra_info": {}}]')
    (500, None)
    """
    last = plan.rpartition("]\n[")[2].removeprefix("[")
    try:
        return int(json.loads(f"[{last}")[0]["extra_info"]["Estimated Cardinality"])
    except (ValueError, LookupError, TypeError):
        return None
