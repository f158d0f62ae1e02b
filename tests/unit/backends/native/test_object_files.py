"""Object files are checked before LLVM sees them."""

from __future__ import annotations

import random

import llvmlite.binding as llvm
import pytest

from sqlml.backends.native.jit.object_code import DamagedError, read_symbols

SOURCE = """
target triple = "{}"
declare double @exp(double)
@table = private constant [4 x double] [double 1.0, double 2.0, double 3.0, double 4.0]
define double @chosen(double %x, i64 %i) {{
  %place = getelementptr [4 x double], ptr @table, i64 0, i64 %i
  %held = load double, ptr %place
  %power = call double @exp(double %x)
  %sum = fadd double %power, %held
  ret double %sum
}}
"""

TRIPLES = (
    *("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "powerpc64le-unknown-linux-gnu"),
    *("arm64-apple-darwin", "x86_64-apple-darwin"),
)


def object_file(triple: str, source: str = SOURCE) -> bytes:
    """What LLVM compiles for a machine."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError:
        pytest.skip("this LLVM does not compile for it")
    machine = target.create_target_machine(codemodel="jitdefault", jit=True)
    made: bytes = machine.emit_object(llvm.parse_assembly(source.format(triple)))
    return made


@pytest.mark.parametrize("triple", TRIPLES)
def test_names_that_a_file_has_and_lacks(triple: str) -> None:
    found = read_symbols(object_file(triple), object_file(triple, 'target triple = "{}"'))
    assert "chosen" in found.defined and found.missing == {"exp"}


@pytest.mark.parametrize("triple", TRIPLES)
def test_a_part_of_a_file_is_damaged(triple: str) -> None:
    whole = object_file(triple)
    for size in range(0, len(whole), 7):
        with pytest.raises(DamagedError):
            read_symbols(whole[:size], whole)
    with pytest.raises(DamagedError):
        read_symbols(whole + b"\0", whole)


@pytest.mark.parametrize("triple", TRIPLES)
def test_of_a_mutated_file_nothing_but_damage_is_said(triple: str) -> None:
    whole = object_file(triple)
    rng = random.Random(triple)
    refused = 0
    for _ in range(2000):
        mutated = bytearray(whole)
        for _ in range(rng.randint(1, 8)):
            mutated[rng.randrange(len(whole))] = rng.randrange(256)
        try:
            read_symbols(bytes(mutated), whole)
        except DamagedError:
            refused += 1
    assert 200 < refused < 2000


def test_a_file_of_another_machine_is_damaged() -> None:
    files = [object_file(triple) for triple in TRIPLES]
    for other in files[1:]:
        with pytest.raises(DamagedError, match="machine"):
            read_symbols(other, files[0])
    with pytest.raises(DamagedError, match="machine"):
        read_symbols(b"", b"")
