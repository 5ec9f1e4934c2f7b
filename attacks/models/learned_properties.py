"""What attacks have in common that decode a property of a client from its uploads, learned from shadow clients.

Property inference from updates: Melis et al., S&P 2019, section 4.3; from models: Ganju et al., CCS 2018. Shadow
clients are :mod:`.shadow_clients`, the decoder is :mod:`.property_decoder`. It applies to every protocol whose clients
upload models, whatever they are and however they step. ``fglaudit run update-properties`` measures it on Cora.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fglaudit.adversary.known_graph import own_nodes
from fglaudit.adversary.uploads.held import check_rounds, missing_uploads
from fglaudit.attacks.models.shadow_clients import ShadowClients, shadow_clients, unrehearsable
from fglaudit.errors import FglauditError
from fglaudit.facts import Fact, is_built_in
from fglaudit.interfaces import Attack, Inference
from fglaudit.payloads import ModelUpdate, Payload
from fglaudit.view import View

ROUNDS = 10


@dataclass(frozen=True)
class LearnedProperty(Attack):
    """Decodes a property of each client that uploads.

    Attributes:
        federations: shadow federations that are trained, each of as many clients as are attacked.
        rounds: how many rounds of uploads are read, from the first.
    """

    consumes: ClassVar[tuple[type[Payload], ...]] = (ModelUpdate,)
    first_rounds: ClassVar[int | None] = ROUNDS
    on_request: ClassVar[bool] = True
    leaks_only: ClassVar[bool] = True

    federations: int = 40
    rounds: int = 5

    def __post_init__(self) -> None:
        check_rounds(self.rounds, ROUNDS)
        if self.federations < _FEWEST:
            raise FglauditError(
                f"a decoder is learned from at least {_FEWEST} shadow federations; got {self.federations}; use more"
            )

    def models(self, fact: Fact) -> bool:
        """Everything that is built in: shadow clients are trained through a fresh bind of the same defense."""
        return is_built_in(fact)

    def unsupported(self, view: View) -> str | None:
        if (why := missing_uploads(view, ModelUpdate) or unrehearsable(view)) is not None:
            return why
        strangers = view.public.num_clients - len(view.observer.clients)
        if int((~own_nodes(view)).sum().item()) < _FEWEST_NODES * strangers:
            return f"clients of fewer than {_FEWEST_NODES} nodes have no distribution to speak of"
        return None

    def run(self, view: View, *, rng: torch.Generator, device: torch.device) -> Inference:
        found = shadow_clients(view, self.federations, self.rounds, rng, device)
        return Inference(type(self).quantity, found.attacked.clients, self.answer(view, found))

    @abstractmethod
    def answer(self, view: View, found: ShadowClients) -> Tensor:
        """Return the estimates for the attacked clients."""


_FEWEST, _FEWEST_NODES = 10, 4
