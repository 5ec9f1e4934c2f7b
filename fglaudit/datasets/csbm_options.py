"""Parameters of the contextual stochastic block model, the rules that they keep, and those that give Cora's counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fglaudit.errors import FglauditError, shown
from fglaudit.files import limits
from fglaudit.files.field_types import CheckedFields

BORDER_MIXING = 0.7  # share of a border node's edges that leave its class


@dataclass(frozen=True)
class CsbmOptions(CheckedFields):
    """Parameters of the model.

    Attributes:
        nodes: number of nodes N.
        edges: exact number of undirected edges.
        classes: number of classes.
        dimensions: number of features F.
        homophily: share of edges that join two nodes of one class, met exactly (rounded to a whole edge).
        features: "binary" or "gaussian".
        ones_per_row: mean number of words in a row (binary only).
        signal: how strongly features depend on the class. Binary: standard deviation of the class's tilt of the log
            word frequencies. Gaussian: ratio of the class centre's norm to the noise's norm.
        degree_exponent: the node of rank r has propensity r ** -degree_exponent; 0 gives nearly equal degrees.
        border: share of nodes between the classes, as interdisciplinary papers are: they take most of the edges across
            classes (border * 0.7 <= 1 - homophily) and their features do not depend on the class. With 0 every node is
            equally typical of its class, and a GCN is right almost everywhere.
        class_sizes: nodes per class; None for sizes that differ by at most one.
        seed: of the draw. It belongs to the data set, not to the cell: all cells of a suite see one graph.
    """

    nodes: int = 1000
    edges: int = 3000
    classes: int = 5
    dimensions: int = 300
    homophily: float = 0.8
    features: Literal["binary", "gaussian"] = "binary"
    ones_per_row: float = 18.0
    signal: float = 1.0
    degree_exponent: float = 0.5
    border: float = 0.0
    class_sizes: tuple[int, ...] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.class_sizes is not None:
            object.__setattr__(self, "class_sizes", tuple(self.class_sizes))
        if self.classes > limits.CLASSES:
            raise FglauditError(
                f"csbm draws at most {limits.CLASSES} classes; got {self.classes}; set classes: {limits.CLASSES} or"
                " less"
            )
        sizes = self.sizes()
        for holds, message in self._rules(sizes):
            if not holds:
                raise FglauditError(message)
        self._check_room(sizes)

    def _rules(self, sizes: tuple[int, ...]) -> list[tuple[bool, str]]:
        """Return whether each rule holds, with what to say where it does not."""
        return [
            (self.classes >= 2, f"csbm needs at least 2 classes; got {self.classes}; set classes: 2 or more"),
            (
                len(sizes) == self.classes and sum(sizes) == self.nodes and min(sizes, default=0) >= 1,
                (
                    "csbm needs one size of at least 1 per class, adding up to nodes; got class_sizes"
                    f" {shown(list(sizes))} for {self.classes} classes and {self.nodes} nodes; change class_sizes,"
                    " classes or nodes"
                ),
            ),
            (0 <= self.homophily <= 1, f"csbm needs homophily in [0, 1]; got {self.homophily}; it is a share of edges"),
            (self.dimensions >= 1, f"csbm needs at least 1 feature; got dimensions: {self.dimensions}; raise it"),
            (
                max(self.nodes, self.classes) * self.dimensions <= limits.ENTRIES,
                (
                    f"csbm draws at most {limits.ENTRIES} features in all; got {self.nodes} nodes with"
                    f" {self.dimensions} each; lower nodes or dimensions"
                ),
            ),
            (
                self.edges <= limits.SIZES["edges"],
                f"csbm draws at most {limits.SIZES['edges']} edges; got {self.edges}; lower edges",
            ),
            (
                self.signal >= 0,
                f"csbm needs signal >= 0; got {self.signal}; use 0 for features that do not depend on the class",
            ),
            (
                self.degree_exponent >= 0,
                f"csbm needs degree_exponent >= 0; got {self.degree_exponent}; use 0 for nearly equal degrees",
            ),
            (
                self.border >= 0 and self.border * BORDER_MIXING <= 1 - self.homophily + 1e-9,
                (
                    f"csbm needs 0 <= border * {BORDER_MIXING} <= 1 - homophily; got border {self.border} with"
                    f" homophily {self.homophily}; lower border"
                ),
            ),
            (
                self.features == "gaussian" or 0 < self.ones_per_row <= self.dimensions,
                (
                    f"csbm needs ones_per_row in (0, dimensions]; got {self.ones_per_row} with dimensions"
                    f" {self.dimensions}; lower it"
                ),
            ),
        ]

    def _check_room(self, sizes: tuple[int, ...]) -> None:
        """Raise :class:`FglauditError` unless the pairs inside and across classes leave room for the edges."""
        inside, across = self.edge_counts()
        room_inside = sum(size * (size - 1) // 2 for size in sizes)
        room_across = self.nodes * (self.nodes - 1) // 2 - room_inside
        if self.edges < 0 or inside > room_inside // 2 or across > room_across // 2:
            raise FglauditError(
                f"csbm draws sparse graphs: at most half of all pairs may be edges; got {inside} edges inside classes"
                f" of {room_inside} pairs and {across} across of {room_across}; lower edges or change homophily"
            )

    def sizes(self) -> tuple[int, ...]:
        """Nodes per class."""
        if self.class_sizes is not None:
            return self.class_sizes
        share, extra = divmod(self.nodes, max(self.classes, 1))
        return tuple(share + (c < extra) for c in range(self.classes))

    def edge_counts(self) -> tuple[int, int]:
        """Undirected edges (inside a class, across classes)."""
        inside = round(self.homophily * self.edges)
        return inside, self.edges - inside


CORA_LIKE = CsbmOptions(
    nodes=2708,
    edges=5278,
    classes=7,
    dimensions=1433,
    homophily=0.81,
    features="binary",
    ones_per_row=18.2,
    signal=1.0,
    degree_exponent=0.68,
    border=0.27,
    class_sizes=(351, 217, 418, 818, 426, 298, 180),
    seed=2708,
)
