"""The three kinds of plugin - protocol, defense, attack - and what they hand over.

Every plugin is a frozen dataclass whose fields are its hyperparameters, so a suite can name them, ``fglaudit show`` can
print them and a cell's hash can cover them; those named in ``shown`` stand in every report, also at their defaults.
Contracts that the type checker cannot see are checked by ``fglaudit.testing``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from fglaudit.context import Aggregate, Context, Examples, Release, Uploads
from fglaudit.errors import FglauditError
from fglaudit.facts import Additive, Fact
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.outcomes import Inference as Inference
from fglaudit.outcomes import Planted as Planted
from fglaudit.outcomes import Reconstruction as Reconstruction
from fglaudit.outcomes import Trained as Trained
from fglaudit.payloads import SERVER, MessageBatch, Payload
from fglaudit.privacy.accounting import Relation
from fglaudit.privacy.strength import check_factor
from fglaudit.structure import Models, Structure
from fglaudit.view import Observer, View


class Channel(Protocol):
    """What a protocol sends through; ``fglaudit.wire.channel.RecordingChannel`` is the real one."""

    def prepare(self, client: ClientGraph) -> ClientGraph:
        """Return the client's graph after the defense had its say (dropped edges, clipped or disturbed rows). Call once
        per client: what is drawn for it is drawn again otherwise."""
        ...

    def prepares(self) -> bool:
        """Whether :meth:`prepare` changes anything; a protocol with very many clients may skip it otherwise."""
        ...

    def send(self, batch: MessageBatch) -> Payload:
        """Send; returns what the receivers get, which is what they must train on (rule 2)."""
        ...

    def wants(self, payload: type[Payload], round: int = 0) -> bool:
        """Whether this payload must really be produced in ``round``: a recorder keeps it or the defense changes it
        (rule 2)."""
        ...

    def noise(self, payload: type[Payload]) -> Additive | None:
        """Return what the defense adds to this payload: public, so receivers can reckon with it."""
        ...

    def seals(self, payload: type[Payload]) -> bool:
        """Whether clients send this payload sealed, so that the server cannot do more with it than linear algebra."""
        ...

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        """Return the defense's groups of cross-client edges, see :meth:`DefenseSession.merge`."""
        ...

    def local_update(self) -> LocalUpdate | None:
        """Return what the defense makes of a step's gradients; None (the usual case) where the plain sum does."""
        ...

    def round_done(self, round: int, rounds: int) -> None:
        """Report progress."""
        ...


LocalUpdate = Callable[[Tensor], Tensor]
"""From the gradients of every example's loss [E, K, D] for K clients, 0 where a client has fewer than E, to their sum
[K, D] as a client uses it. Whoever wants a mean divides the sum by a number of examples that does not depend on it."""


SERVER_TRUSTED = "holds against clients alone, the server is trusted"
"""What the mechanism's description says in results where ``Guarantee.server_trusted``."""


@dataclass(frozen=True)
class Guarantee:
    """What a defense promises, in data: accountants judge it. Empty fields mean that nothing is promised.

    Attributes:
        server_trusted: whether it holds against clients alone, because the server gets features in the clear.
        relation: what happens to the record between neighbouring data sets; ``adjacency`` says it in words.
        coalition: how many clients may pool what they see without it losing its hold; None: any number.
        sum_without: where ``epsilon_claimed`` is about the sum of what clients send, to which each adds a share of the
            noise: how many of them may tell whoever sees the sum what they added; None: it is not about a sum.
    """

    mechanism: str = ""
    epsilon_claimed: float | None = None
    epsilon_accounted: float | None = None
    delta: float | None = None
    unit: str = ""
    adjacency: str = ""
    releases: int | None = None
    key_custody: str = ""
    server_trusted: bool = False
    relation: Relation | None = None
    coalition: int | None = None
    sum_without: int | None = None

    @property
    def seals_alone(self) -> bool:
        """Whether all that is promised is that the server cannot read what travels sealed."""
        epsilons = self.epsilon_claimed, self.epsilon_accounted
        return bool(self.key_custody) and not self.unit and all(epsilon is None for epsilon in epsilons)

    def covers(self, observer: Observer) -> bool:
        """Whether the promise is about what ``observer`` sees. Sealed messages are so for who holds no key."""
        if self.seals_alone and observer.clients:
            return False
        too_many = self.coalition is not None and len(observer.clients) > self.coalition
        return not too_many and not (self.server_trusted and (observer.wire or SERVER in observer.parties))


_NO_HOOKS = ("noise", "parameters")
"""Methods of sessions by which noise and clips were once stated."""


class DefenseSession:
    """A defense bound to one training run. Every hook does nothing by default."""

    def prepare(self, client: ClientGraph, rng: torch.Generator) -> ClientGraph:
        """Change what a client starts from; ``rng`` draws what is random about it. Must not mutate ``client``."""
        return client

    def merge(self, center: Tensor, neighbor: Tensor) -> Tensor:
        """Group the cross-client edges ``center <- neighbor`` [E] of one neighbourhood each, ascending by center.

        Whoever sums over neighbourhoods uses the mean of a group's rows in place of each of them.

        Returns:
            Group of every edge [E], numbered from 0; -1 where the neighbour's own row is used.
        """
        return torch.full_like(center, -1)

    def prepares(self) -> bool:
        """Whether :meth:`prepare` may change a client."""
        return type(self).prepare is not DefenseSession.prepare

    def local_update(self, gradients: Tensor, rng: torch.Generator) -> Tensor:
        """Return the sum over the examples of ``gradients`` [E, K, D], clipped and with noise [K, D]; see
        :data:`LocalUpdate`."""
        return gradients.sum(0)

    def updates(self) -> bool:
        """Whether :meth:`local_update` is more than the sum, so that gradients are wanted example by example."""
        return type(self).local_update is not DefenseSession.local_update

    def changes(self, payload: type[Payload]) -> bool:
        """Whether the defense may alter this payload, in :meth:`release` or before it is made."""
        return False

    def release(self, batch: MessageBatch, rng: torch.Generator) -> Payload:
        """Return what leaves the senders: clip and noise at the sender, client or server. Called for every payload,
        whatever :meth:`changes` says; return ``batch.payload`` for those it leaves alone."""
        return batch.payload

    def seals(self, payload: type[Payload]) -> bool:
        """Whether clients send this payload sealed: the server can then add, pick and scale its rows, and not read
        them."""
        return False

    def seal(self, batch: MessageBatch, rng: torch.Generator) -> MessageBatch:
        """Return what leaves the clients: floating-point fields as :class:`fglaudit.sealing.SealedTensor`, after
        :meth:`release`. Clients that drop out are left out."""
        return batch

    def forward(self, batch: MessageBatch) -> MessageBatch:
        """Return what leaves the server, which made ``batch`` of sealed values. A scheme whose totals the server may
        read opens them here; others return it as it is."""
        return batch

    def unseal(self, batch: MessageBatch) -> MessageBatch:
        """Return sealed messages as :meth:`readers` clients that pool their keys read them."""
        return batch

    def readers(self, batch: MessageBatch) -> int:
        """How many clients must pool their keys to read these sealed messages; whoever sent a message reads it
        anyway."""
        return 1

    def leave_out(self, clients: tuple[int, ...]) -> None:
        """The server says that ``clients`` are gone: from now on, until this is called again, they send nothing."""

    def overhead(self) -> tuple[Tensor, Tensor] | None:
        """Return the bytes [K] up and [K] down of keys and the like that the scheme itself exchanged since the last
        call, if any."""
        return None

    def facts(self) -> tuple[Fact, ...]:
        """What the defense does to rows, edges, gradients and payload fields, in the order in which it applies; public
        (rule 4), and compared with what the hooks really do (rule 11)."""
        return ()

    def guarantee(self) -> Guarantee:
        return Guarantee()

    def sealed_by(self) -> DefenseSession:
        """Return the session that seals: itself, or a part of a stack."""
        return self

    def promised_by(self) -> DefenseSession:
        """Return the session whose guarantee this one's is, which audits replay: itself, or a part of a stack."""
        return self


def bound(defense: Defense, context: Context) -> DefenseSession:
    """Bind ``defense``, and refuse a session that states what it does in a way that nobody reads any more.

    Raises:
        FglauditError: if the session has a method ``noise`` or ``parameters``.
    """
    session = defense.bind(context)
    for old in _NO_HOOKS:
        if callable(getattr(type(session), old, None)):
            raise FglauditError(
                f"what a defense does is stated in facts(); the session of {type(defense).name} has {old}(), which is"
                f" read no longer; return it from facts(), e.g. Additive(Field(...), distribution, scale), drop {old}()"
            )
    return session


class Defense(ABC):
    """Changes what is sent or how training is done, and states its guarantee. Subclasses are frozen dataclasses."""

    name: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = ()

    def unsupported(self, context: Context) -> str | None:
        """Return why this defense cannot serve the protocol, or None. The cell is then `not-applicable` with that
        reason."""
        return None

    @abstractmethod
    def bind(self, context: Context) -> DefenseSession:
        """Calibrate for one training run."""

    def weakened(self, factor: float) -> Self:
        """Return the same defense at a strength that falls to 0 with ``factor``, in (0, 1]. One that has no strength
        to set, or is as strong at any setting, returns itself."""
        check_factor(factor)
        return self


class FederatedProtocol(ABC):
    """A federated training method. Subclasses are frozen dataclasses; their fields are the hyperparameters."""

    name: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = ()
    emits: ClassVar[tuple[type[Payload], ...]]

    @property
    @abstractmethod
    def num_rounds(self) -> int:
        """Federated rounds (or epochs) of one training."""

    def check(self, graph: FederatedGraph) -> None:
        """Raise :class:`fglaudit.errors.FglauditError` if ``graph`` does not fit the protocol."""
        return

    def check_messages(self, graph: FederatedGraph, kept: Callable[[type[Payload]], bool]) -> None:
        """Raise :class:`fglaudit.errors.FglauditError` if messages that are ``kept``, by type, would be too large.
        Asked before anything is computed: it counts nodes and degrees, no more."""
        return

    @abstractmethod
    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        """Train from scratch; everything that crosses between parties goes through ``channel``."""

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """Return the payloads through which features leave a client; a defense calibrates on them."""
        return ()

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Whether edges between clients, as :meth:`Channel.prepare` leaves them, enter anything that is sent or trained
        on; defenses that drop such edges refuse otherwise, since they would change nothing. Default: no."""
        return False

    def features_used(self, graph: FederatedGraph) -> bool:
        """Whether feature rows enter anything that is sent or trained on; defenses that change rows refuse otherwise.
        Default: they do."""
        return True

    def examples(self, graph: FederatedGraph) -> Examples | str:
        """Return how local training is a sum of losses per node, or why it is not. What it names must be trained
        through :meth:`Channel.local_update`."""
        return f"{self.name} does not train by gradients of losses that belong to single nodes"

    def stated(self, graph: FederatedGraph) -> Structure:
        """Return ``structure``, with what ``uploads`` says of the mean of models: all that attacks may know."""
        uploads = self.uploads(graph)
        averaged = uploads.averaged if isinstance(uploads, Uploads) else 0
        return self.structure(graph).replace(Models, averaged=averaged)

    def uploads(self, graph: FederatedGraph) -> Uploads | str:
        """Return how clients' models get to the server, or why they do not."""
        return f"no client of {self.name} sends a model"

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """Return the payloads with which the server does no more than linear algebra; a defense can hide those from
        it."""
        return {}

    def readers(self) -> Mapping[type[Payload], str]:
        """Return why somebody must read the other payloads that clients send: what is done with them beyond linear
        algebra."""
        return {}

    def sealed(self, graph: FederatedGraph, session: DefenseSession) -> tuple[str, ...]:
        """Return names of the payloads that ``session`` hides: those that clients send sealed, and what the server
        makes of them."""
        made = {aggregate.returned for sent, aggregate in self.aggregates(graph).items() if session.seals(sent)}
        return tuple(payload.__name__ for payload in type(self).emits if session.seals(payload) or payload in made)

    def context(self, graph: FederatedGraph) -> Context:
        """Return the facts that a defense is bound to."""
        holders = int(torch.bincount(torch.cat(graph.clients)).max().item())
        return Context(
            protocol=type(self).name,
            rounds=self.num_rounds,
            num_clients=graph.num_clients,
            num_features=graph.num_features,
            releases=self.releases(graph),
            aggregates=self.aggregates(graph),
            readers=self.readers(),
            sends=bool(type(self).emits),
            rows_per_node=holders * (graph.x.shape[1] if graph.x.dim() == 3 else 1),
            examples=self.examples(graph),
            uploads=self.uploads(graph),
            num_classes=graph.num_classes,
            cross_edges=self.cross_edges(graph),
            features_used=self.features_used(graph),
        )

    def structure(self, graph: FederatedGraph) -> Structure:
        """Return what attacks may know of this protocol's payloads and training, see :mod:`fglaudit.structure`; they
        read nothing else of it. Default: nothing; attacks that need a statement are then not applicable."""
        return Structure()

    def exposed(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes whose features reach ``observer`` by messages about features: its targets. Default:
        all nodes that the observing clients do not own; none for a protocol that sends nothing at all."""
        if not type(self).emits:
            return torch.empty(0, dtype=torch.long)
        mine = torch.zeros(graph.num_nodes, dtype=torch.bool)
        for k in observer.clients:
            mine[graph.clients[k]] = True
        return (~mine).nonzero().squeeze(1)

    def layer_inputs(self, graph: FederatedGraph, clients: Sequence[ClientGraph]) -> tuple[Tensor, Tensor] | None:
        """Return the rows that the first layer of each client's model reads in training, and so every update of it is
        made of: clients [M], ascending, and rows [M, F]. ``clients`` have the edges that a defense left; rows and
        messages are as they are without one. Asked by the scorer. None, the default: the protocol does not say."""
        return None

    def labelled(self, graph: FederatedGraph, observer: Observer) -> Tensor:
        """Return ids of the nodes whose labels the protocol itself gives to ``observer`` (a server that computes the
        loss holds the training labels). They stand in ``View.labels`` and are no targets of label inference. Default:
        none."""
        return torch.empty(0, dtype=torch.long)


class Attack(ABC):
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
    """Kinds of facts that make rows random before use with which it reckons itself. With others it is run on the rows
    as they were used, and what it rebuilds is decided by likelihood."""
    first_rounds: ClassVar[int | None] = None
    """How many rounds of messages it reads at most, counted from the first; a recorder need not keep more. None:
    all."""

    last_rounds: ClassVar[int | None] = None
    """How many rounds of messages it reads at most, counted back from the last; a recorder need not keep more. None: it
    reads from the first on, see ``first_rounds``."""
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
        for field, bound in type(self).least.items():
            if not (value := getattr(self, field)) >= bound:
                raise FglauditError(f"{self.name} needs {field} >= {bound:g}; got {value}; raise it")

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
