"""A process without sqlml that loads an exported model, and prints how long that takes.

python -m benchmarks.exported_child FILE.duckdb_extension
"""

from __future__ import annotations

import json
import sys
import time

import duckdb


def main() -> None:
    """Load the file, and print {"load": ..} in seconds."""
    con = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    start = time.perf_counter()
    con.execute(f"LOAD '{sys.argv[1]}'")
    seconds = time.perf_counter() - start
    if any(name in sys.modules for name in ("sqlml", "numba")):
        raise SystemExit("the process has loaded sqlml")
    print(json.dumps({"load": seconds}))


if __name__ == "__main__":
    main()
