"""`Lookup`: the models that a session has found, by what its queries call them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from functools import lru_cache

from sqlml.bounded_cache import Recent
from sqlml.catalog.model import Model, parse_reference
from sqlml.catalog.read import Catalog
from sqlml.catalog.small_models import SmallModel
from sqlml.catalog.training_facts import TrainingFacts
from sqlml.errors import UnknownModelError

PATIENCE = 1.0
"""Seconds to wait for a model that existed before: another connection may drop and recreate it in
two statements."""
_LOOKS = (0.005, 0.01, 0.02, 0.04, 0.08)
"""Seconds from one look to the next; the last one from then on."""

_reference = lru_cache(maxsize=256)(parse_reference)


class Lookup:
    """Models by references such as 'churn' or 'churn/3', read again when their stamp changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known: Recent[str, tuple[object, Model]] = Recent()

    def model(self, name: str) -> Model:
        """The model that a reference means now.

        Raises:
            UnknownModelError: no such model, version or alias.
            ArtifactError: it is damaged.
        """
        stamp, known = self.stamp(name), self._known.get(name)
        if stamp is not None and known is not None and known[0] == stamp:
            return known[1]
        looks = iter(_LOOKS)
        end: float | None = None
        while True:
            try:
                found = self._catalog.get(parse_reference(name))
            except UnknownModelError:
                self._known.take(lambda key: key == name)
                if end is None:
                    end = time.monotonic() + (0.0 if known is None else PATIENCE)
                # A transaction of the user's sees no change of others.
                if time.monotonic() >= end or self._catalog.in_transaction():
                    raise
                stamp = None
                while stamp is None and time.monotonic() < end:
                    time.sleep(next(looks, _LOOKS[-1]))
                    stamp = self.stamp(name)
                continue
            self._known.put(name, (stamp, found), found.program.nbytes)
            return found

    def several(self, names: Iterable[str]) -> Mapping[str, object]:
        """Read the models of these references together; `model` then has them at hand.

        Returns:
            The stamps of those that are written as references to a database that is attached; None
            for a model that does not exist and never did.
        """
        references = {}
        for name in names:
            try:
                references[name] = _reference(name)
            except UnknownModelError:
                continue
        stamps = self._catalog.stamps(set(references.values()))
        found = {n: stamps[r] for n, r in references.items() if r in stamps}
        known = {name: self._known.get(name) for name in found}
        others = {
            references[name]: name
            for name, stamp in found.items()
            if stamp is not None and ((kept := known[name]) is None or kept[0] != stamp)
        }
        for reference, model in self._catalog.several(others):
            name = others[reference]
            self._known.put(name, (found[name], model), model.program.nbytes)
        return {n: s for n, s in found.items() if s is not None or known[n] is None}

    def training(self, model: Model) -> TrainingFacts | None:
        """How a version was trained; None if sqlml did not train it."""
        return self._catalog.training(model)

    def small_models(self, model: Model) -> Mapping[str, SmallModel]:
        """The small models of a version, by kind. Raises ArtifactError if one is damaged."""
        return self._catalog.small_models(model)

    def stamp(self, name: str) -> object:
        """A value that changes with the model; None if that is unknown."""
        return self._catalog.stamp(_reference(name))

    def forget(self) -> None:
        """Know no model any more, and wait for none: this session changed one."""
        self._known = Recent()
