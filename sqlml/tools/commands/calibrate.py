"""`sqlml calibrate`: measure this machine for the choice of backends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sqlml.backends.costs import SHIPPED, place
from sqlml.tools.calibration.calibrate import calibrate


def main(arguments: Sequence[str]) -> int:
    """`sqlml calibrate`: measure this machine for the choice of backends, and say what was kept."""
    made = argparse.ArgumentParser(
        prog="sqlml calibrate",
        description="Measure what the installed backends cost on this machine, in nanoseconds a "
        "step, and keep it for the choice of backend and strategy.",
    )
    made.parse_args(arguments)
    try:
        measured = calibrate()
    except OSError as error:
        print(f"sqlml: cannot save the costs: {error}", file=sys.stderr)
        return 1
    for name, shipped in SHIPPED.items():
        if name in measured:
            print(f"{name:<22}{measured[name]:>12.4f}  (shipped: {shipped:g})")
    print(f"saved in {place()}")
    return 0
