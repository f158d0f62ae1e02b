"""Combine the models of all partitions into one Program, which picks the model of each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sqlml.backends.category_lookup import make_encoder
from sqlml.errors import ArtifactError, ConfigError
from sqlml.ir import reference
from sqlml.ir.builder import Builder, Value
from sqlml.ir.operators.categories import PARTITION
from sqlml.ir.partition_programs import load_program, pack_programs
from sqlml.ir.program import Program
from sqlml.passes import select_outputs
from sqlml.types import Array, DType, Labels, numpy_dtype

Key = tuple[str | int | bool, ...]
"""The values of the partition columns in a partition."""


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column whose values divide the rows; `is_text` tells strings from integers."""

    name: str
    is_text: bool

    @property
    def dtype(self) -> DType:
        return "string" if self.is_text else "float64"


def combine_programs(
    columns: Sequence[PartitionColumn],
    programs: Mapping[Key, Program],
    default: Program | None,
    accepts_unseen: bool,
    order: Sequence[str],
) -> Program:
    """Return a Program that scores each row with the Program of its partition.

    `order` lists the names of all columns in the order of the inputs. `default` scores the rows of
    other partitions. Without it, such rows are an error or, if `accepts_unseen`, their outputs are
    NaN, and -1 for classes. A classifier has the classes of all partitions. Raise ConfigError if
    the models have no output in common.
    """
    members = [*programs.values(), *([] if default is None else [default])]
    members = [_with_own_classes(program) for program in members]
    members, labels = _align_labels(members)
    categories = _find_categories(members)
    members = [_read_codes(program, categories) for program in members]
    builder = Builder()
    key_inputs = {column.name: column.dtype for column in columns}
    features: dict[str, Value] = {}
    input_nodes = {n: p.nodes[i] for p in reversed(members) for n, i in p.inputs.items()}
    for name in order:
        if name in key_inputs:
            builder.input(name, key_inputs[name])
        elif name in categories:
            known = categories[name]
            text = builder.input(name, "string")
            code = builder.op("encode", text, categories=known, missing=len(known))
            features[name] = builder.cast(code, "float64")
        elif name in input_nodes:
            features[name] = builder.input_of(input_nodes[name])
    code = _encode_partitions(builder, columns, list(programs))
    if default is None and not accepts_unseen:
        names = ", ".join(column.name for column in columns)
        code = builder.op("require_known", code, feature=names, step=PARTITION)
    packed = pack_programs(members)
    outputs = {}
    for output in _find_common_outputs(members):
        outputs[output] = builder.op(
            "by_partition",
            code,
            *features.values(),
            **packed,
            names=tuple(features),
            output=output,
            dtype=members[0].output_type(output).dtype,
            width=members[0].output_type(output).width,
            has_default=default is not None,
        )
    if not outputs:
        raise ConfigError("the models of the partitions return different kinds of results")
    return builder.build(outputs, labels)


def _find_categories(members: Sequence[Program]) -> dict[str, Array]:
    """Return the strings that any of `members` distinguishes, for inputs that are only encoded."""
    values: dict[str, dict[str, None]] = {}
    others: set[str] = set()
    for program in members:
        encoders = _find_encoders(program)
        for name, index in program.inputs.items():
            if program.nodes[index].type.dtype != "string":
                continue
            if name not in encoders:
                others.add(name)
                continue
            known = values.setdefault(name, {})
            for i in encoders[name]:
                known.update(dict.fromkeys(_map_strings(program, i)[1]))
    return {n: _to_object_array(list(v)) for n, v in values.items() if n not in others}


def _find_encoders(program: Program) -> dict[str, list[int]]:
    """Map string inputs to the nodes of their codes, if nothing else reads the strings.

    These nodes are the last ones that depend on this input only, through `_CODE_OPERATORS`.
    """
    sources: dict[int, str] = {}
    read: set[int] = set(program.outputs.values())
    for i, node in enumerate(program.nodes):
        if node.op == "input" and node.type.dtype == "string":
            sources[i] = str(node.attrs["name"])
            continue
        rowwise_inputs = [j for j in node.inputs if program.nodes[j].type.rowwise]
        names = {sources.get(j) for j in rowwise_inputs}
        (name,) = names if len(names) == 1 else (None,)
        if name is not None and node.op in _CODE_OPERATORS:
            sources[i] = name
        else:
            read.update(rowwise_inputs)
    encoders: dict[str, list[int]] = {name: [] for name in sources.values()}
    for i in sorted(read & sources.keys()):
        encoders[sources[i]].append(i)
    unencoded = {sources[i] for i in read & sources.keys() if _is_text(program, i)}
    return {name: nodes for name, nodes in encoders.items() if name not in unencoded}


_CODE_OPERATORS = frozenset({"fill", "encode", "cast", "add", "take"})
"""Operators that turn a string into a code, and a code into another one."""


def _is_text(program: Program, i: int) -> bool:
    return program.nodes[i].type.dtype == "string"


def _map_strings(program: Program, i: int) -> tuple[Array, dict[str, float]]:
    """Return the codes of an unknown string and of NULL at node `i`, and those of other strings.

    Strings with the code of an unknown string are left out.
    """
    chain = [i]
    while program.nodes[chain[-1]].op != "input":
        inputs = program.nodes[chain[-1]].inputs
        chain += [j for j in inputs if program.nodes[j].type.rowwise]
    nodes = [program.nodes[k] for k in reversed(chain[:-1])]
    strings: dict[str, None] = {}
    for node in nodes:
        if node.op == "encode" and node.attrs["categories"].dtype == object:
            strings |= dict.fromkeys(node.attrs["categories"].tolist())
        elif node.op == "fill" and "missing" in node.attrs:
            strings[str(node.attrs["missing"])] = None
    unknown = "?" * (max(map(len, strings), default=0) + 1)
    values: Array = _to_object_array([unknown, None, *strings]).reshape(-1, 1)
    for node in nodes:
        if node.op == "encode":
            values = make_encoder(node.attrs["categories"], node.attrs["missing"])(values)
            continue
        arguments = [
            values if program.nodes[j].type.rowwise else program.nodes[j].attrs["value"]
            for j in node.inputs
        ]
        values = reference.FUNCTIONS[node.op](arguments, node.attrs)
    codes = values[:, 0]
    pairs = zip(strings, codes[2:].tolist(), strict=True)
    return codes[:2], {text: code for text, code in pairs if code != codes[0]}


def _read_codes(program: Program, categories: Mapping[str, Array]) -> Program:
    """Return `program` with codes of `categories` in place of strings, as float64 inputs.

    The code -1 stands for another string, and the number of categories stands for NULL.
    """
    encoders = {n: e for n, e in _find_encoders(program).items() if n in categories}
    names = {i: name for name, nodes in encoders.items() for i in nodes}
    positions = {n: {text: k for k, text in enumerate(categories[n])} for n in encoders}
    builder, values = Builder(), dict[int, Value]()
    for i, node in enumerate(program.nodes):
        if i in names:
            name = names[i]
            (unknown, missing), own_codes = _map_strings(program, i)
            known = {float(positions[name][text]): code for text, code in own_codes.items()}
            known[float(len(categories[name]))] = missing
            code = builder.input(name, "float64")
            values[i] = _translate_codes(builder, code, known, unknown, node.type.dtype)
        elif node.op == "input" and node.attrs["name"] in encoders:
            continue
        elif all(j in values for j in node.inputs):
            values[i] = builder.copy_node(node, [values[j] for j in node.inputs])
    return builder.build({n: values[i] for n, i in program.outputs.items()}, program.labels)


def _translate_codes(
    builder: Builder, code: Value, known: Mapping[float, float], unknown: float, dtype: DType
) -> Value:
    """Return the values of `known` for each row's code, float64 (n, 1), or `unknown`.

    The largest known code is the number of categories. If `known` has few of them, the codes are
    numbered first, so that the table is as small as `known`.
    """
    last_code = int(max(known))
    if last_code <= _TABLE_SHARE * len(known):
        table = np.full(last_code + 2, unknown, numpy_dtype(dtype))
        for position, value in known.items():
            table[int(position) + 1] = value
        index = builder.cast(code, "int64")
    else:
        table = np.array([unknown, *known.values()], numpy_dtype(dtype))
        index = builder.op("encode", code, categories=np.array([*known]), missing=-1)
    return builder.op("take", table, builder.op("add", index, np.array(1)))


_TABLE_SHARE = 4
"""A table of all categories is used if it has at most 4 times as many entries as are known."""


@dataclass(frozen=True, slots=True, eq=False)
class Partitions:
    """The parts of a Program of partitions, which are the arguments of `combine_programs`."""

    columns: tuple[PartitionColumn, ...]
    programs: Mapping[Key, Program]
    default: Program | None
    accepts_unseen: bool

    def combine(self) -> Program:
        programs = [*self.programs.values(), *([] if self.default is None else [self.default])]
        names = dict.fromkeys(column.name for column in self.columns)
        names |= dict.fromkeys(name for program in programs for name in program.inputs)
        arguments = (self.programs, self.default, self.accepts_unseen, list(names))
        return combine_programs(self.columns, *arguments)


def split_partitions(program: Program, columns: Sequence[str], keys: Sequence[Key]) -> Partitions:
    """Return the Programs of a model that was trained with PARTITION BY `columns`.

    `keys` are the values of its partitions, in order. Raise ArtifactError if they do not fit.
    """
    nodes = program.nodes
    node = next((node for node in nodes if node.op == "by_partition"), None)
    count = 0 if node is None else len(node.attrs["ends"]) - int(node.attrs["has_default"])
    if node is None or count != len(keys) or not set(columns) <= program.inputs.keys():
        message = "the stored partitions do not fit the model; train the model again"
        raise ArtifactError(message)
    inputs = {n: nodes[j] for n, j in zip(node.attrs["names"], node.inputs[1:], strict=True)}
    codes = {name: n for name, n in inputs.items() if n.op == "cast"}
    categories = {n: nodes[c.inputs[0]].attrs["categories"] for n, c in codes.items()}
    members = [
        _read_strings(load_program(node.attrs, index), categories)
        for index in range(len(node.attrs["ends"]))
    ]
    return Partitions(
        tuple(PartitionColumn(n, program.input_type(n).dtype == "string") for n in columns),
        dict(zip(keys, members, strict=False)),
        members[-1] if node.attrs["has_default"] else None,
        not node.attrs["has_default"] and nodes[node.inputs[0]].op != "require_known",
    )


def _read_strings(program: Program, categories: Mapping[str, Array]) -> Program:
    """Return `program` with strings in place of codes of `categories`: reverses `_read_codes`."""
    builder, values = Builder(), list[Value]()
    for node in program.nodes:
        name = str(node.attrs.get("name"))
        if node.op == "input" and name in categories:
            known = categories[name]
            text = builder.input(name, "string")
            code = builder.op("encode", text, categories=known, missing=len(known))
            values.append(builder.cast(code, "float64"))
        else:
            values.append(builder.copy_node(node, [values[j] for j in node.inputs]))
    return builder.build({n: values[i] for n, i in program.outputs.items()}, program.labels)


def _encode_partitions(
    builder: Builder, columns: Sequence[PartitionColumn], keys: Sequence[Key]
) -> Value:
    """Return the index of each row's partition, or -1 for a partition that is not among `keys`."""
    if len(columns) == 1:
        return _encode_column(builder, columns[0], [key[0] for key in keys])
    first_values = list(dict.fromkeys(key[0] for key in keys))
    code = _encode_column(builder, columns[0], first_values)
    prefixes: list[Key] = [(value,) for value in first_values]
    for position, column in enumerate(columns[1:], 2):
        # The index of the values so far, and that of the next value, both counted from 1 because 0
        # is unknown, form a number, which is encoded as the index of these values.
        values = list(dict.fromkeys(key[position - 1] for key in keys))
        base = len(values) + 1
        indexes = [{key: k for k, key in enumerate(items, 1)} for items in (prefixes, values)]
        prefixes = list(dict.fromkeys(key[:position] for key in keys))
        numbers = [indexes[0][key[:-1]] * base + indexes[1][key[-1]] for key in prefixes]
        own_code = builder.op("add", _encode_column(builder, column, values), np.array(1))
        code = builder.op("mul", builder.op("add", code, np.array(1)), np.array(base))
        number = builder.op("add", code, own_code)
        code = builder.op("encode", number, categories=np.array(numbers, np.int64), missing=-1)
    order = {prefix: index for index, prefix in enumerate(prefixes)}
    assert [order[key] for key in keys] == list(range(len(keys)))
    return code


def _encode_column(builder: Builder, column: PartitionColumn, values: Sequence[object]) -> Value:
    categories = _to_object_array(values) if column.is_text else np.array(values, np.float64)
    column_input = builder.input(column.name, column.dtype)
    return builder.op("encode", column_input, categories=categories, missing=-1)


def _to_object_array(values: Sequence[object]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _find_common_outputs(members: Sequence[Program]) -> list[str]:
    def get_type(program: Program, output: str) -> object:
        return program.output_type(output) if output in program.outputs else None

    first = members[0]
    return [o for o in first.outputs if len({str(get_type(p, o)) for p in members}) == 1]


def _align_labels(members: Sequence[Program]) -> tuple[list[Program], tuple[Labels, ...]]:
    """Return Programs that all have the classes of any of `members`, and these classes."""
    first_labels = members[0].labels
    if len({program.labels for program in members}) == 1:
        return list(members), first_labels
    values = sorted({value for program in members for value in program.labels[0].values})
    labels = replace(first_labels[0], values=tuple(values))
    return [_with_classes(program, labels) for program in members], (labels,)


def _with_own_classes(program: Program) -> Program:
    """Return `program` without the classes that `_with_classes` added."""
    if len(program.labels) != 1 or "label" not in program.outputs:
        return program
    label = program.nodes[program.outputs["label"]]
    if label.op != "take" or program.nodes[label.inputs[0]].op != "constant":
        return program
    positions = program.nodes[label.inputs[0]].attrs["value"].tolist()
    (labels,) = program.labels
    builder = Builder(program.nodes)
    outputs = {"label": builder.value(label.inputs[1])}
    if "proba" in program.outputs:
        outputs["proba"] = builder.value(program.nodes[program.outputs["proba"]].inputs[0])
    own_values = tuple(labels.values[position] for position in positions)
    return builder.build(outputs, replace(labels, values=own_values), tuple(program.inputs))


def _with_classes(program: Program, labels: Labels) -> Program:
    """Return `program` with further classes, whose probability is 0, and without scores."""
    program = select_outputs(program, [o for o in ("label", "proba") if o in program.outputs])
    positions = [labels.values.index(value) for value in program.labels[0].values]
    builder = Builder(program.nodes)
    own_label = builder.value(program.outputs["label"])
    outputs = {"label": builder.op("take", np.array(positions, np.int64), own_label)}
    if "proba" in program.outputs:
        proba = builder.value(program.outputs["proba"])
        places = np.eye(len(labels))[positions]
        outputs["proba"] = builder.linear(builder.cast(proba, "float64"), places)
    return builder.build(outputs, labels, tuple(program.inputs))
