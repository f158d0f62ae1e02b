"""`Lookup`: the models that a session has found, by what its queries call them."""

from __future__ import annotations

from sqlml.catalog.catalog import Catalog
from sqlml.catalog.model import Model, parse_reference
from sqlml.recent import Recent


class Lookup:
    """Models by references such as 'churn' or 'churn/3', read anew when their stamp is another."""

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
        found = self._catalog.get(parse_reference(name))
        self._known.put(name, (stamp, found), found.program.nbytes)
        return found

    def stamp(self, name: str) -> object:
        """What tells one state of the model from another; None where that is not known."""
        return self._catalog.stamp(parse_reference(name))

    def forget(self) -> None:
        """Know no model any more."""
        self._known = Recent()
