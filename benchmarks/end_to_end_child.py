"""A process that scores rows made by a query, and prints the most memory that it took.

python -m benchmarks.end_to_end_child DATABASE ROWS FEATURES THREADS
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import sqlml


def peak() -> int:
    """Return the most bytes that this process has taken.

    On Linux, `ru_maxrss` is no answer, since it starts at the peak of the parent process.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # macOS counts in bytes.
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def relation(rows: int, features: int) -> str:
    """Rows that no disk holds: each value is a fraction that depends on row and column."""
    values = ", ".join(
        f"((i * {7919 + 2 * column} + {column}) % 10007 / 2500.0 - 2)::FLOAT AS f{column}"
        for column in range(features)
    )
    return f"(SELECT {values} FROM range({rows}) AS r(i)) AS t"


def main() -> None:
    """Score, and print {"start": .., "peak": ..} in bytes."""
    path, rows, features, threads = sys.argv[1], *(int(a) for a in sys.argv[2:])
    with sqlml.connect(path) as con:
        con.execute(f"SET threads = {threads}")
        query = "SELECT sum(predict_proba('m', *, class := 1)) FROM "
        con.execute(query + relation(1000, features)).fetchall()
        start = peak()
        con.execute(query + relation(rows, features)).fetchall()
    print(json.dumps({"start": start, "peak": peak()}))


if __name__ == "__main__":
    main()
