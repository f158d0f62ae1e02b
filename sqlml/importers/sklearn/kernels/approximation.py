"""Features that approximate a kernel: the samplers and PolynomialCountSketch.

Besides them NeighborhoodComponentsAnalysis, a learned linear map.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sqlml.errors import UnsupportedModelError
from sqlml.importers.frame import Frame
from sqlml.importers.sklearn.checked import numbers, within
from sqlml.importers.sklearn.fitted import check
from sqlml.ir.builder import Value

_INTERVALS = {1: 0.8, 2: 0.5, 3: 0.4}
"""AdditiveChi2Sampler's default sample_interval by sample_steps."""


def rbf_sampler(model: Any, frame: Frame) -> Frame:
    """cos(x @ random_weights_ + random_offset_) * sqrt(2 / n_components)."""
    check(model, "random_weights_", "random_offset_")
    scale = (2.0 / model.n_components) ** 0.5
    return _cosines(model, frame, numbers(frame, "RBFSampler"), scale)


def skewed_chi2_sampler(model: Any, frame: Frame) -> Frame:
    """cos(log(x + skewedness) W + b) sqrt(2 / n); x at or below -skewedness raises."""
    check(model, "random_weights_", "random_offset_")
    builder, skew = frame.builder, float(model.skewedness)
    low = np.full(frame.width, np.nextafter(-skew, np.inf))
    x = within(frame, frame.matrix(), "SkewedChi2Sampler", low=low)
    x = builder.op("log", builder.op("add", x, skew))
    return _cosines(model, frame, x, np.sqrt(2.0) / np.sqrt(model.n_components))


def additive_chi2_sampler(model: Any, frame: Frame) -> Frame:
    """sqrt(x * interval), then for each step a cosine and a sine of log(x); 0 where x is 0."""
    check(model)
    builder = frame.builder
    interval = model.sample_interval
    interval = float(_INTERVALS[model.sample_steps] if interval is None else interval)
    x = within(frame, frame.matrix(), "AdditiveChi2Sampler", low=np.zeros(frame.width))
    empty = builder.op("eq", x, 0.0)

    parts = [builder.op("sqrt", builder.op("mul", x, interval))]
    log_step = builder.op("mul", builder.op("log", x), interval)
    step = builder.op("mul", builder.op("mul", x, 2.0), interval)
    for j in range(1, model.sample_steps):
        width = np.cosh(np.pi * j * interval)
        factor = builder.op("sqrt", builder.op("div", step, width))
        for wave in ("cos", "sin"):
            angle = builder.op("mul", log_step, float(j))
            made = builder.op("mul", factor, builder.op(wave, angle))
            parts.append(builder.op("where", empty, 0.0, made))
    return Frame.of(builder, builder.beside(parts))


def polynomial_count_sketch(model: Any, frame: Frame) -> Frame:
    """The circular convolution of `degree` count sketches, through their Fourier transforms."""
    check(model, "indexHash_", "bitHash_")
    builder, size = frame.builder, int(model.n_components)
    x = numbers(frame, "PolynomialCountSketch")
    # One number a column: onnxruntime would fuse a single one into the product, as a float32.
    x = builder.op("mul", np.full(frame.width, np.sqrt(model.gamma)), x)
    angle = 2 * np.pi * (np.outer(np.arange(size), np.arange(size)) % size) / size
    cosine, sine = np.cos(angle), np.sin(angle)
    spectra: list[tuple[Value, Value]] = []
    for index, bit in zip(model.indexHash_, model.bitHash_, strict=True):
        hashed = np.zeros((len(index), size))
        hashed[np.arange(len(index)), index] = bit
        shift = 0.0
        if model.coef0 != 0:  # the last row of the table belongs to the constant
            shift, hashed = np.sqrt(model.coef0) * hashed[-1], hashed[:-1]
        sketch = builder.linear(x, hashed, shift)
        spectra.append((builder.linear(sketch, cosine), builder.linear(sketch, -sine)))
    if not spectra:
        raise UnsupportedModelError("PolynomialCountSketch has degree 0; fit it with 1 or more")
    real, imaginary = spectra[0]
    for a, b in spectra[1:]:
        real, imaginary = (
            builder.op("sub", builder.op("mul", real, a), builder.op("mul", imaginary, b)),
            builder.op("add", builder.op("mul", real, b), builder.op("mul", imaginary, a)),
        )
    both = builder.op("concat", real, imaginary)
    back = np.concatenate([cosine, -sine]) / size
    return Frame.of(builder, builder.linear(both, back))


def neighborhood_components(model: Any, frame: Frame) -> Frame:
    """x @ components_.T."""
    check(model, "components_")
    x = numbers(frame, "NeighborhoodComponentsAnalysis")
    return Frame.of(frame.builder, frame.builder.linear(x, np.asarray(model.components_).T))


def _cosines(model: Any, frame: Frame, x: Value, scale: float) -> Frame:
    projected = frame.builder.linear(x, model.random_weights_, model.random_offset_)
    waves = frame.builder.op("cos", projected)
    return Frame.of(frame.builder, frame.builder.op("mul", waves, scale))
