"""Visits of shops, and the training of models with a partition for each shop."""

from __future__ import annotations

from typing import Any

from sqlml.session.session import Session

VISITS = """
    CREATE TABLE visits AS
        SELECT
            i AS id, ['north', 'south', 'it''s'][(hash(i, 1) % 3)::INTEGER + 1] AS shop,
            (hash(i, 2) % 2)::INTEGER AS floor,
            if(hash(i, 3) % 9 = 0, NULL, (hash(i, 4) % 1000) / 100) AS hour,
            if(hash(i, 5) % 9 = 0, NULL, ['card', 'cash', 'app'][(hash(i, 6) % 3)::INTEGER + 1])
                AS payment,
            (hash(i, 7) % 100) / 100 AS noise,
            CASE shop
                WHEN 'north' THEN 2 * coalesce(hour, 3) WHEN 'south' THEN 9 - coalesce(hour, 0)
                ELSE if(payment = 'card', 5, 1)
            END + noise AS amount,
            CASE WHEN amount > if(shop = 'north', 10, 5) THEN 'large' WHEN noise > 0.7 THEN 'odd'
                ELSE 'small' END AS size,
            size = 'large' AS is_large
        FROM range(1200) AS t(i)
"""

FEATURES = "shop, floor, hour, payment"

NUMBERS = "label = 'amount'"
CLASSES = "label = 'size'"


def train(con: Session, options: str, query: str = "", partition_by: str = "shop") -> None:
    label = next(word for word in ("amount", "size", "is_large") if f"'{word}'" in options)
    con.execute(
        f"CREATE OR REPLACE MODEL m PARTITION BY {partition_by} OPTIONS ({options}) AS "
        + (query or f"SELECT {FEATURES}, {label} FROM visits")
    )


def fetch(con: Session, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    return con.execute(query, list(parameters)).fetchall()
