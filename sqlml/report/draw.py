"""`drawn`: a chart as SVG that stands in a page: without scripts, fonts or links of its own.

Its colours are variables of the page's style sheet, so that one drawing is right in light, in dark
and in print.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

_SVG = "http://www.w3.org/2000/svg"

_KEPT = frozenset(
    "viewBox transform d x y x1 y1 x2 y2 width height cx cy r fill fill-opacity stroke "
    "stroke-width stroke-opacity stroke-dasharray stroke-miterlimit stroke-linecap opacity "
    "text-anchor font-size font-weight".split()
)
"""Attributes that draw; the others name roles and classes of Vega's own."""

_ELEMENTS = frozenset("svg g path line rect circle text tspan".split())

_LARGER = 1.15
"""How much larger than on a phone plots are where there is room."""

_NUMBER = re.compile(r"-?\d+\.\d{3,}")


def drawn(chart: Any) -> str:
    """The markup of a chart of Altair's."""
    import vl_convert

    root = ElementTree.fromstring(vl_convert.vegalite_to_svg(chart.to_dict(validate=False)))
    _strip(root)
    root.set("width", f"{float(root.attrib['width']) * _LARGER:.0f}")
    del root.attrib["height"]
    root.set("aria-hidden", "true")
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode")


def _strip(element: ElementTree.Element) -> None:
    """Take away what draws nothing, and what is not known to be but a drawing."""
    for child in list(element):
        name = str(child.tag).removeprefix(f"{{{_SVG}}}")
        if name not in _ELEMENTS or child.get("display") == "none" or _is_blank(name, child):
            element.remove(child)
            continue
        _strip(child)
        if name == "g" and not len(child):
            element.remove(child)
    for attribute in list(element.attrib):
        if attribute not in _KEPT:
            del element.attrib[attribute]
    for attribute in ("d", "transform"):
        if attribute in element.attrib:
            element.set(attribute, _NUMBER.sub(_rounded, element.attrib[attribute]))


def _is_blank(name: str, element: ElementTree.Element) -> bool:
    """Whether a path is a background without colours."""
    unseen = name == "path" and not {"fill", "stroke"} & set(element.keys())
    return unseen and element.get("class") in ("background", "foreground")


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}"
