"""The libraries of all platforms with all kernels, inspected as files, since they cannot run here.

`tests/clients` runs some of them under emulators. Compiling the kernels takes 25 minutes of
processor time. Later runs find the object files in `build/` and take a minute.
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import sqlml
from sqlml.backends.native.jit.compile_ahead import read_known_kernels
from sqlml.backends.native.jit.kernel_keys import make_key
from sqlml.backends.native.jit.processor_levels import LEVELS, LIBRARY
from sqlml.backends.native.jit.runtime_library import CALLED, list_kernel_keys
from sqlml.backends.native.runtime.__main__ import OBJECTS
from sqlml.backends.native.runtime.build_runtime import (
    CONNECTION,
    EXTENSION,
    TARGETS,
    build_runtime,
    detect_duckdb_platform,
)
from sqlml.backends.native.runtime.compile_kernels import TRIPLES, compile_kernels
from sqlml.backends.native.runtime.init_symbol import RESERVED
from sqlml.udfs.duckdb.native.extension_file import MAGIC
from sqlml.udfs.duckdb.native.platform_runtimes import FOOTER_BYTES, VARIANTS, add_runtime

pytest.importorskip("ziglang", reason="needs ziglang")
lief = pytest.importorskip("lief", reason="needs lief")

pytestmark = pytest.mark.nightly

each_platform = pytest.mark.parametrize("platform", TRIPLES)

ROOT = Path(__file__).parents[5]

EXPORTS = {
    *CALLED,
    "sqlml_call_kernel",
    "sqlml_connection",
    "sqlml_detect_level",
    "sqlml_duckdb_api",
    "sqlml_find_kernel",
    "sqlml_get_bind_data",
    "sqlml_init_c_api",
    "sqlml_python",
    "sqlml_sources",
    RESERVED,
}

LIBRARIES = {
    "linux": {"libc.so.6", "libdl.so.2", "libm.so.6"},
    "osx": {"/usr/lib/libSystem.B.dylib"},
    "windows": {"KERNEL32.dll", "api-ms-win-crt"},  # The second is the C library since Windows 10.
}
"""What a library may need of a system."""

C_FUNCTIONS = set(
    "calloc close dladdr erfc fma free malloc memchr memcmp memcpy memmove memset mmap munmap open "
    "realloc snprintf strcmp strlen strtod trunc".split()
)
"""Functions of the C library that `runtime.c` and kernels call."""

SYSTEM_FUNCTIONS = {
    "linux": {"__fxstat", "bcmp"},
    "osx": set("__bzero _availability_version_check bzero dyld_stub_binder fstat".split())
    | {"fstat$INODE64", "memset_pattern16"},
    # Most of them belong to the code that starts a library and ends it.
    "windows": set(
        "CloseHandle CreateFileMappingW CreateFileW DeleteCriticalSection EnterCriticalSection "
        "GetFileSizeEx GetLastError GetModuleFileNameW GetModuleHandleExW "
        "InitializeCriticalSection LeaveCriticalSection MapViewOfFile Sleep TlsGetValue "
        "UnmapViewOfFile VirtualProtect VirtualQuery "
        "__acrt_iob_func __stdio_common_vfprintf _errno _execute_onexit_table _exit _fpreset "
        "_initialize_onexit_table _initterm _initterm_e _register_onexit_function abort fputc "
        "fwrite localeconv mbrtowc strerror strncmp wcrtomb wcslen".split()
    ),
}

LARGEST = {"amd64": 10 << 20, "arm64": 3 << 20}
"""The most bytes of a library, by its processor."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A range of addresses, and which of "r", "w" and "x" its memory is."""

    start: int
    stop: int
    protection: str


@dataclass(frozen=True, slots=True)
class Inspected:
    """What a file says to the loader of its system.

    `pointers` are the addresses of the words to which the loader adds the library's own address,
    with what they point to.
    """

    binary: Any
    exports: frozenset[str]
    libraries: frozenset[str]
    imports: frozenset[str]
    segments: tuple[Segment, ...]
    pointers: Mapping[int, int]

    def find_segment(self, address: int) -> Segment:
        return next(s for s in self.segments if s.start <= address < s.stop)


def inspect(path: Path) -> Inspected:
    binary = lief.parse(str(path))
    if isinstance(binary, lief.ELF.Binary):
        return inspect_elf(binary)
    return inspect_pe(binary) if isinstance(binary, lief.PE.Binary) else inspect_mach(binary)


def inspect_elf(binary: Any) -> Inspected:
    flags = {lief.ELF.Segment.FLAGS.R: "r", lief.ELF.Segment.FLAGS.W: "w"}
    flags[lief.ELF.Segment.FLAGS.X] = "x"
    segments = [
        Segment(
            s.virtual_address,
            s.virtual_address + s.virtual_size,
            "".join(text for flag, text in flags.items() if flag in s.flags),
        )
        for s in binary.segments
        if s.type == lief.ELF.Segment.TYPE.LOAD
    ]
    relative = {lief.ELF.Relocation.TYPE.X86_64_RELATIVE, lief.ELF.Relocation.TYPE.AARCH64_RELATIVE}
    return Inspected(
        binary,
        frozenset(symbol.name for symbol in binary.exported_symbols),
        frozenset(binary.libraries),
        frozenset(symbol.name for symbol in binary.imported_symbols),
        tuple(segments),
        {r.address: r.addend for r in binary.dynamic_relocations if r.type in relative},
    )


def inspect_pe(binary: Any) -> Inspected:
    kinds = lief.PE.Section.CHARACTERISTICS
    flags = {kinds.MEM_READ: "r", kinds.MEM_WRITE: "w", kinds.MEM_EXECUTE: "x"}
    headers = Segment(0, binary.sizeof_headers, "r")
    segments = [
        Segment(
            section.virtual_address,
            section.virtual_address + max(section.virtual_size, section.size),
            "".join(text for flag, text in flags.items() if section.has_characteristic(flag)),
        )
        for section in binary.sections
    ]
    slots = [
        entry.address
        for block in binary.relocations
        for entry in block.entries
        if entry.type == lief.PE.RelocationEntry.BASE_TYPES.DIR64
    ]
    return Inspected(
        binary,
        frozenset(entry.name for entry in binary.get_export().entries),
        frozenset("-".join(library.name.split("-")[:4]) for library in binary.imports),
        frozenset(entry.name for library in binary.imports for entry in library.entries),
        (headers, *segments),
        {slot: read_pointer(binary, slot) - binary.imagebase for slot in slots},
    )


def inspect_mach(binary: Any) -> Inspected:
    if isinstance(binary, lief.MachO.FatBinary):
        binary = binary.at(0)
    segments = [
        Segment(
            s.virtual_address,
            s.virtual_address + s.virtual_size,
            "".join(text for bit, text in enumerate("rwx") if s.max_protection >> bit & 1),
        )
        for s in binary.segments
    ]
    bound = {binding.address for binding in binary.bindings}
    slots = [r.address for r in binary.relocations if r.address not in bound]
    headers = {"__mh_dylib_header", "___dso_handle"}
    exports = {s.name for s in binary.symbols if s.has_export_info and s.name not in headers}
    return Inspected(
        binary,
        frozenset(name.removeprefix("_") for name in exports),
        frozenset(library.name for library in binary.libraries if library.name != install_name()),
        frozenset(binding.symbol.name.removeprefix("_") for binding in binary.bindings),
        tuple(segments),
        {slot: read_pointer(binary, slot) for slot in slots},
    )


def list_export_names(binary: Any) -> list[bytes]:
    """Return the names in the export directory of a Windows library, in its order."""

    def read(address: int, size: int) -> bytes:
        return bytes(binary.get_content_from_virtual_address(address, size))

    directory = binary.data_directory(lief.PE.DataDirectory.TYPES.EXPORT_TABLE).rva
    (count,) = struct.unpack("<I", read(directory + 24, 4))
    (table,) = struct.unpack("<I", read(directory + 32, 4))
    addresses = struct.unpack(f"<{count}I", read(table, 4 * count))
    return [read(address, 300).partition(b"\0")[0] for address in addresses]


def install_name() -> str:
    return f"@rpath/{EXTENSION}"


def read_pointer(binary: Any, address: int) -> int:
    content = bytes(binary.get_content_from_virtual_address(address, 8))
    return int.from_bytes(content, "little")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a folder for each platform, as a release builds them."""
    folder = tmp_path_factory.mktemp("platforms")
    compile_kernels(OBJECTS, list(TRIPLES), read_known_kernels())
    with pytest.MonkeyPatch.context() as patch:
        # Tests have a home of their own, where Zig would compile each system's C library again.
        patch.setenv("ZIG_GLOBAL_CACHE_DIR", str(OBJECTS.parent / "zig"))
        for platform in TRIPLES:
            assert build_runtime(folder / platform, platform, OBJECTS / platform, portable=True)
    return folder


@pytest.fixture(scope="module")
def inspected(folder: Path) -> Mapping[str, Inspected]:
    return {platform: inspect(folder / platform / EXTENSION) for platform in TRIPLES}


@each_platform
def test_exports(platform: str, folder: Path, inspected: Mapping[str, Inspected]) -> None:
    assert inspected[platform].exports == EXPORTS
    assert inspect(folder / platform / CONNECTION / EXTENSION).exports == EXPORTS


@each_platform
def test_imports_are_of_the_c_library(platform: str, inspected: Mapping[str, Inspected]) -> None:
    system = platform.partition("_")[0]
    assert inspected[platform].libraries <= LIBRARIES[system]
    assert inspected[platform].imports <= C_FUNCTIONS | SYSTEM_FUNCTIONS[system]


@each_platform
def test_no_memory_is_writable_and_executable(
    platform: str, inspected: Mapping[str, Inspected]
) -> None:
    library = inspected[platform]
    assert {s.protection for s in library.segments} <= {"", "r", "rw", "rx"}
    assert "rx" in {s.protection for s in library.segments}
    if platform.startswith("linux"):
        (stack,) = (s for s in library.binary.segments if s.type == lief.ELF.Segment.TYPE.GNU_STACK)
        assert lief.ELF.Segment.FLAGS.X not in stack.flags
    elif platform.startswith("osx"):
        flags = library.binary.header.flags_list
        assert lief.MachO.Header.FLAGS.ALLOW_STACK_EXECUTION not in flags
    else:
        characteristics = lief.PE.OptionalHeader.DLL_CHARACTERISTICS
        assert library.binary.optional_header.has(characteristics.NX_COMPAT)
        assert library.binary.optional_header.has(characteristics.DYNAMIC_BASE)
        assert library.binary.optional_header.has(characteristics.HIGH_ENTROPY_VA)


@each_platform
def test_the_loader_changes_no_code(platform: str, inspected: Mapping[str, Inspected]) -> None:
    library = inspected[platform]
    protections = {library.find_segment(address).protection for address in library.pointers}
    if platform.startswith("linux"):
        assert protections == {"rw"}
        tags = {entry.tag for entry in library.binary.dynamic_entries}
        assert lief.ELF.DynamicEntry.TAG.TEXTREL not in tags
        flags = library.binary.get(lief.ELF.DynamicEntry.TAG.FLAGS)
        assert not flags.value & 4, "DF_TEXTREL"
        everything = {library.find_segment(r.address) for r in library.binary.relocations}
        assert {segment.protection for segment in everything} == {"rw"}
    elif platform.startswith("osx"):
        assert protections == {"rw"}
        bound = {library.find_segment(b.address).protection for b in library.binary.bindings}
        assert bound == {"rw"}
    else:  # Windows makes read-only data writable while it changes addresses.
        assert protections <= {"r", "rw"}


@each_platform
def test_each_level_has_machine_code_of_each_kernel(
    platform: str, folder: Path, inspected: Mapping[str, Inspected]
) -> None:
    kernels = read_known_kernels()
    keys = tuple(make_key(kernel.function, kernel.signature) for kernel in kernels)
    content = (folder / platform / EXTENSION).read_bytes()
    assert list_kernel_keys(content) == keys
    levels = TARGETS[platform].levels
    assert all(level.encode() + b"\0" in content for level in levels)
    taking_numbers = sum(set(kernel.signature) <= {"count"} for kernel in kernels)
    library = inspected[platform]
    functions = {
        target
        for target in library.pointers.values()
        if library.find_segment(target).protection == "rx"
    }
    assert len(functions) >= len(levels) * (len(kernels) + taking_numbers)
    tables = (measure_run(slot, library.pointers) for slot in library.pointers)
    assert max(tables) >= len(levels) * len(kernels)


def measure_run(slot: int, pointers: Mapping[int, int]) -> int:
    """Return how many words of a table from `slot` on are pointers; 0 within a table."""
    if slot - 8 in pointers:
        return 0
    count = 0
    while slot + 8 * count in pointers:
        count += 1
    return count


DETECT = """
import ctypes, sys
detect = ctypes.CDLL(sys.argv[1]).sqlml_detect_level
detect.restype = ctypes.c_char_p
print(detect().decode())
"""


def detect_level(library: Path, *emulator: str) -> str:
    command = [*emulator, sys.executable, "-I", "-S", "-c", DETECT, str(library)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


needs_amd = pytest.mark.skipif(
    detect_duckdb_platform() != "linux_amd64", reason="needs a processor of x86-64"
)


@needs_amd
def test_the_level_is_the_best_of_this_processor(folder: Path) -> None:
    features = llvm.get_host_cpu_features()
    best = next(level for level, needed in LEVELS.items() if all(map(features.get, needed)))
    assert detect_level(folder / "linux_amd64" / EXTENSION) == best


@needs_amd
@pytest.mark.skipif(shutil.which("qemu-x86_64-static") is None, reason="needs qemu-user-static")
@pytest.mark.parametrize(
    ("processor", "level"),
    [("Nehalem", "x86-64"), ("IvyBridge", "x86-64"), ("Haswell", "x86-64-v3")],
)
def test_the_level_is_the_best_of_other_processors(
    processor: str, level: str, folder: Path
) -> None:
    emulator = ("qemu-x86_64-static", "-cpu", processor)
    assert detect_level(folder / "linux_amd64" / EXTENSION, *emulator) == level


@each_platform
def test_the_oldest_system_is_that_of_the_wheel(
    platform: str, inspected: Mapping[str, Inspected]
) -> None:
    binary, tag = inspected[platform].binary, TARGETS[platform].wheel
    if platform.startswith("linux"):
        newest = max(
            tuple(int(part) for part in version.name.removeprefix("GLIBC_").split("."))
            for library in binary.symbols_version_requirement
            for version in library.get_auxiliary_symbols()
        )
        assert tag.startswith("manylinux_2_17_") and newest <= (2, 17)
    elif platform.startswith("osx"):
        assert tag.startswith("macosx_11_0_")
        assert list(binary.build_version.minos) == [11, 0, 0]
        assert binary.build_version.platform == lief.MachO.BuildVersion.PLATFORMS.MACOS
    else:
        header = binary.optional_header
        assert (header.major_subsystem_version, header.minor_subsystem_version) == (6, 0)


@each_platform
def test_the_file_is_small_and_does_not_depend_on_where_it_is_built(
    platform: str, folder: Path, inspected: Mapping[str, Inspected]
) -> None:
    content = (folder / platform / EXTENSION).read_bytes()
    assert len(content) < LARGEST[platform.partition("_")[2]]
    paths = (ROOT, Path.home(), folder)
    assert not [path for path in paths if str(path).encode() in content]
    if platform.startswith("osx"):
        (own,) = (
            command.name
            for command in inspected[platform].binary.commands
            if command.command == lief.MachO.LoadCommand.TYPE.ID_DYLIB
        )
        assert own == install_name()


@pytest.fixture(scope="module")
def forest() -> RandomForestClassifier:
    random = np.random.default_rng(0)
    columns = random.normal(size=(200, 3))
    return RandomForestClassifier(5, max_depth=4, random_state=0).fit(columns, columns[:, 0] > 0)


@pytest.fixture
def exported(
    platform: str,
    folder: Path,
    forest: RandomForestClassifier,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Path]:
    """A model that is exported for a platform, from the library of a release."""
    if not LIBRARY.is_file() or not list_kernel_keys(LIBRARY.read_bytes()):
        pytest.skip("the checkout has no runtime with kernels: run `make runtime`")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(
        "sqlml.udfs.duckdb.native.platform_runtimes.detect_duckdb_platform", lambda: None
    )
    assert add_runtime(folder / platform / EXTENSION) == platform
    path = tmp_path / "a_rather_long_name_of_a_forest.duckdb_extension"
    sqlml.compile(forest).to_extension(path, platform=platform)
    yield path


@each_platform
def test_an_exported_file_has_the_library_the_data_and_duckdbs_footer(
    platform: str, folder: Path, exported: Path
) -> None:
    content, library = exported.read_bytes(), (folder / platform / EXTENSION).read_bytes()
    fields = [content[k : k + 32].rstrip(b"\0").decode() for k in range(-FOOTER_BYTES, -256, 32)]
    assert fields == ["", "", "", "C_STRUCT", "1", "v1.2.0", platform, "4"]
    assert not any(content[-256:]), "no signature"
    magic, size = struct.unpack_from("<8sq", content, len(content) - FOOTER_BYTES - 16)
    start = len(content) - FOOTER_BYTES - 16 - size
    assert magic == MAGIC and content[start:].startswith(MAGIC)
    assert start % 64 == 0 and 0 <= start - (len(library) - FOOTER_BYTES) < 64
    assert struct.unpack_from("<q", content, start + 16) == (size,)


@each_platform
def test_an_exported_file_has_the_init_function_that_duckdb_calls(
    platform: str, exported: Path, inspected: Mapping[str, Inspected]
) -> None:
    library, copy = inspected[platform], inspect(exported)
    name = exported.stem + "_init_c_api"
    assert copy.exports == (library.exports - {RESERVED}) | {name}
    assert (copy.imports, copy.pointers) == (library.imports, library.pointers)
    if platform.startswith("windows"):  # Windows searches the names by halving.
        names = list_export_names(copy.binary)
        assert names == sorted(names) and len(names) == len(EXPORTS)
        addresses = [
            {entry.name: entry.address for entry in binary.get_export().entries}
            for binary in (copy.binary, library.binary)
        ]
        assert addresses[0][name] == addresses[1][RESERVED]


@pytest.mark.parametrize("platform", ["osx_arm64"])
def test_the_signature_has_the_hash_of_each_page(platform: str, exported: Path) -> None:
    content = exported.read_bytes()
    signature = inspect(exported).binary.code_signature
    blob = content[signature.data_offset :][: signature.data_size]
    magic, _, count, kind, offset = struct.unpack_from(">5I", blob)
    assert (hex(magic), count, kind) == ("0xfade0cc0", 1, 0), "a code directory, and nothing else"
    directory = blob[offset:]
    magic, _, _, flags, hashes, _, _, pages, limit = struct.unpack_from(">9I", directory)
    hash_size, hash_type, _, page_bits = directory[36:40]
    assert (hex(magic), hash_size, hash_type) == ("0xfade0c02", 32, 2), "SHA-256"
    assert flags & 2, "ad-hoc"
    assert limit == signature.data_offset and pages == -(-limit >> page_bits)
    for page in range(pages):
        start = page << page_bits
        expected = hashlib.sha256(content[start : min(start + (1 << page_bits), limit)]).digest()
        assert directory[hashes + 32 * page :].startswith(expected), page


@pytest.mark.parametrize(("variant", "platform"), VARIANTS.items())
def test_further_names_of_platforms(
    variant: str, platform: str, exported: Path, forest: RandomForestClassifier
) -> None:
    sqlml.compile(forest).to_extension(exported, platform=variant)
    assert exported.read_bytes()[-FOOTER_BYTES:].count(variant.encode() + b"\0") == 1
