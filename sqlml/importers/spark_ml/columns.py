"""`Columns`: what the columns of Spark's table hold, stage by stage."""

from __future__ import annotations

from dataclasses import dataclass

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.ir.builder import Builder, Value


@dataclass(frozen=True, slots=True)
class Column:
    """One column of Spark's: a scalar, whose frame has one column, or a vector.

    `raw` says that it may be NULL or infinite, as what comes from the table as it is. `codes`
    (n, 1) int64 are the same numbers where they are known to lie below `categories`.
    """

    frame: Frame
    vector: bool
    raw: bool = False
    codes: Value | None = None
    categories: int = 0


class Columns:
    """The columns by name; those that no stage makes are the model's inputs."""

    def __init__(self, frame: Frame, vector: str | None) -> None:
        """`vector` names the one input that is a vector, all of `frame`; None: they are scalars."""
        self.builder: Builder = frame.builder
        if vector is not None:
            self._held = {vector: Column(frame, True, True)}
        else:
            self._held = {
                name: Column(frame.take([i]), False, True) for i, name in enumerate(frame.names)
            }

    def put(
        self, name: str, value: Value, names: tuple[str, ...], *, vector: bool, raw: bool = False
    ) -> None:
        """What a stage has made: (n, k) numbers."""
        self._held[name] = Column(Frame.of(self.builder, value, names), vector, raw)

    def put_codes(self, name: str, codes: Value, categories: int, read: str) -> None:
        """The number of a category, below `categories`, of the column `read`."""
        value = self.builder.op("cast", codes, dtype="float64")
        frame = Frame.of(self.builder, value, (read,))
        self._held[name] = Column(frame, False, False, codes, categories)

    def any(self, name: str) -> Column:
        """A column of either kind."""
        return self._held[name]

    def scalar(self, name: str, stage: str) -> Column:
        """A column of single values."""
        found = self._held[name]
        if found.vector:
            raise UnsupportedModelError(f"{stage} reads the vector {name!r} as a single value")
        return found

    def vector(self, name: str, stage: str, width: int | None = None) -> Frame:
        """A vector of finite numbers and NaN, of `width` where the stage knows it.

        Raises:
            UnsupportedModelError: it has another width.
        """
        found = self._held[name]
        frame = found.frame
        if not found.vector:
            raise UnsupportedModelError(
                f"{stage} reads {name!r}, which is a single value here, as a vector; put the "
                "VectorAssembler into the pipeline"
            )
        if width is not None and frame.width != width:
            raise UnsupportedModelError(
                f"{stage} was fitted on vectors of {width} numbers, and {name!r} has {frame.width} "
                "here: a column that VectorAssembler reads may be a vector itself; put the stage "
                "that makes it into the pipeline"
            )
        if found.raw:
            checked = frame.builder.op(
                "require_finite", frame.matrix(), features=frame.names, allow_nan=True, step=stage
            )
            frame = Frame.of(frame.builder, checked, frame.names)
            self._held[name] = Column(frame, True)
        return frame
