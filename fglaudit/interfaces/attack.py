"""An attack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch

from fglaudit.errors import require_least
from fglaudit.facts import Fact
from fglaudit.files.field_types import CheckedFields
from fglaudit.interfaces.outcomes import Inference, Planted, Reconstruction
from fglaudit.payloads import Payload
from fglaudit.view import View


class Attack(CheckedFields, ABC):
    """Turns a view into a reconstruction or an inference. Subclasses are frozen dataclasses."""

    name: ClassVar[str]
    consumes: ClassVar[tuple[type[Payload], ...]]
    """Payloads it reads; ``attacks: all`` runs it on protocols that send all of them."""
    metric: ClassVar[str]
    """Primary metric; the advantage is computed on it."""
    also_reads: ClassVar[tuple[type[Payload], ...]] = ()
    """Payloads that help where they are sent, and alone are no reason to run."""
    computed_from: ClassVar[tuple[type[Payload], ...]] = ()
    """Payloads that it does not need to read, but from which those that it reads are computed: :meth:`models` is asked
    for facts about them too."""
    quantity: ClassVar[str] = "features"
    """What is inferred: "features" for a :class:`Reconstruction`, otherwise a name of
    ``fglaudit.quantities.QUANTITIES``."""
    reads_noisy_rows: ClassVar[tuple[type[Fact], ...]] = ()
    """Kinds of facts that make rows random before use whose noise it models itself. With others it is run on the rows
    as they were used, and what it rebuilds is decided by likelihood."""
    first_rounds: ClassVar[int | None] = None
    """How many rounds of messages it reads at most, counted from the first; a recorder need not keep more. None:
    all."""

    last_rounds: ClassVar[int | None] = None
    """How many rounds of messages it reads at most, counted back from the last; a recorder need not keep more. None: it
    reads from the first on, see ``first_rounds``. Where both are given it reads both ends."""
    sealed_only: ClassVar[bool] = False
    """Whether it reads only payloads that clients send sealed; of others a recorder need not keep a message for it."""

    on_request: ClassVar[bool] = False
    """Whether it runs only where a suite names it: ``attacks: all`` leaves out what trains many models, or asks what
    most suites do not."""

    reads_ids: ClassVar[bool] = False
    """Whether it reads which nodes rows belong to, rather than the rows; on messages of noise these are random too."""

    leaks_only: ClassVar[bool] = False
    """Whether it learns from examples what messages mean, so that a low score says nothing of what they carry: its row
    may show a leak, never its absence."""

    least: ClassVar[Mapping[str, float]] = {}
    """The least value of fields that are numbers, by name."""

    def __post_init__(self) -> None:
        require_least(self, **type(self).least)

    @classmethod
    def reads(cls) -> tuple[type[Payload], ...]:
        """Return the payloads that it may read, of which a recorder keeps messages: ``consumes`` and ``also_reads``; an
        attack on payloads that it cannot name adds those of the registry."""
        return (*cls.consumes, *cls.also_reads)

    @classmethod
    def last_round(cls, payload: type[Payload]) -> int | None:
        """Return the last round whose ``payload`` it reads, None for all; for attacks that read some payloads
        longer."""
        return cls.first_rounds

    def models(self, fact: Fact) -> bool:
        """Whether the attack allows for ``fact``; asked for every fact about the payloads it reads. It runs anyway:
        where it does not, its row may show a leak, never its absence."""
        return False

    def unsupported(self, view: View) -> str | None:
        """Return why this attack cannot work on ``view``, or None."""
        return None

    @abstractmethod
    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Reconstruction | Inference:
        """Attack. ``view`` is not mutated; all randomness comes from ``rng``."""

    def plant(self, view: View, *, rng: torch.Generator) -> Planted | None:
        """Return a view of the same shapes where what this attack looks for lies in plain sight; None, the default:
        ``fglaudit.adversary.default_planting`` does so for attacks that rebuild rows."""
        return None
