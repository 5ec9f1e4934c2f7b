"""Private reports: every node reports the class that its own row alone predicts, once; all the rest is made of reports.

Three steps:

1. ``encoder_rounds`` rounds of federated averaging train a linear classifier on the training nodes' own rows. With
   ``pseudo_labels`` this encoder has more to learn from: ``rounds`` before it train the classifier on codes and own
   rows, as ``structure-only`` does, and the validation nodes' rows then train the encoder too, towards the classes that
   it predicts for them (:mod:`fglaudit.federated.pseudo_labels`). Their labels are not used.
2. Every node sends the class that the new global model predicts *from its own row alone* (``ClassReports``); the server
   passes it on to the clients of the node's neighbours. Under the defense ``k-ary-response`` the report is random, also
   to the node's own client, which goes on from what it sent.
3. Reports, less the mean of a random one, are propagated over the whole graph as ``structure-only`` propagates public
   codes (:mod:`fglaudit.federated.hop_exchange`), and training goes on with them in the inputs: the same weights, of
   which those of propagated rows were not used before.

A k-ary response lies evenly: its expectation is the true class times a public factor plus a constant. Rows are brought
to length 1 after propagation, so taking off the constant is all that removing the bias asks for.

**The unit of the guarantee**: a reporting node, one in neither the training nor the validation set. Its row enters
nothing but its own report, if inputs hold features of the node itself alone (``features_at_home: own-row``): the rows
of training nodes move the models, with ``pseudo_labels`` those of validation nodes too, and settings are chosen on
validation nodes. With ``own-subgraph`` the rows of nodes
up to two own steps from a training node enter the models too, so that no epsilon is stated. Edges and labels are
public to the guarantee.

What is observed: the server sees all reports and the propagated rows of nodes with cross-client edges, a client both of
its remote neighbours; edges show in propagated codes (``code-edges``); models as in ``fedgcn``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fglaudit.context import REPORTING_NODE, Aggregate, Examples, Release, Uploads
from fglaudit.errors import FglauditError, require_least
from fglaudit.federated.fedavg import averaged_models, trainers
from fglaudit.federated.home_head import HOME_HOPS, NO_FEATURES, OWN_ROW, AtHome, HomeHead, joined
from fglaudit.federated.hop_exchange import HopExchange
from fglaudit.federated.neighborhood import KeptEdges
from fglaudit.federated.problem import check_trainable
from fglaudit.federated.pseudo_labels import LEFT_OUT, remarks, training, with_pseudo_labels
from fglaudit.federated.sending import to_server
from fglaudit.graph import ClientGraph, FederatedGraph
from fglaudit.interfaces import Channel, FederatedProtocol, Trained
from fglaudit.interfaces.outcomes import PREDICTED_CLASSES
from fglaudit.nn.codes import public_codes
from fglaudit.nn.sparse import row_starts
from fglaudit.payloads import ClassReports, HopSums, ModelUpdate, Payload
from fglaudit.privacy.degree_bound import node_examples
from fglaudit.protocols.private.structure_only import check_hops
from fglaudit.structure import Codes, Models, Reports, Structure


@dataclass(frozen=True)
class PrivateReports(FederatedProtocol):
    """One report per node, propagated; features at home.

    Attributes:
        hops: after how many steps propagated reports enter a node's input, ascending.
        code_hops, width, code_seed: of public codes beside them, as in ``structure-only``; width 0: none.
        features_at_home, home_weight: see ``fglaudit.federated.home_head.HomeHead``.
        report_weight: length of the propagated reports in an input, beside length 1 of the codes.
        most_classes: how many classes a report can tell apart; one byte holds 256.
        pseudo_labels: whether the encoder is also trained on validation nodes' rows, never on their labels.
        encoder_rounds, rounds: before and after the reports; with ``pseudo_labels`` another ``rounds`` come first.
        local_steps, learning_rate, weight_decay: of federated averaging, by SGD.
    """

    name: ClassVar[str] = "private-reports"
    shown: ClassVar[tuple[str, ...]] = ("hops", "features_at_home")
    also: ClassVar[Mapping[str, str]] = {"seed": "code_seed"}
    emits: ClassVar[tuple[type[Payload], ...]] = (ClassReports, HopSums, ModelUpdate)

    hops: tuple[int, ...] = (4, 8, 16)
    code_hops: tuple[int, ...] = (8, 16, 32)
    width: int = 512
    code_seed: int = 0
    features_at_home: AtHome = "own-row"
    home_weight: float = 1.5
    report_weight: float = 1.0
    most_classes: int = 256
    pseudo_labels: bool = False
    encoder_rounds: int = 20
    rounds: int = 30
    local_steps: int = 3
    learning_rate: float = 5.0
    weight_decay: float = 1e-3

    def __post_init__(self) -> None:
        check_hops(self.name, self.hops)
        check_hops(self.name, self.code_hops)
        require_least(self, width=0, encoder_rounds=1)
        if self.most_classes < 2:
            raise FglauditError(
                f"a report tells at least 2 classes apart; got most_classes: {self.most_classes}; raise it, or leave it"
                " out"
            )
        if self.features_at_home == NO_FEATURES:
            raise FglauditError(
                f"{self.name} predicts a node's report from its row; got features_at_home: none; use structure-only"
            )
        if not self.report_weight > 0:
            raise FglauditError(f"report_weight is a length above 0; got {self.report_weight:g}; use structure-only")
        self.head(self.rounds)

    def head(self, rounds: int) -> HomeHead:
        """Return the classifier, trained for ``rounds``."""
        return HomeHead(
            self.features_at_home, self.home_weight, rounds, self.local_steps, self.learning_rate, self.weight_decay
        )

    @property
    def num_rounds(self) -> int:
        return self.reported_after + self.rounds

    @property
    def reported_after(self) -> int:
        """The round after which nodes report."""
        return self.encoder_rounds + (self.rounds if self.pseudo_labels else 0)

    def check(self, graph: FederatedGraph) -> None:
        check_trainable(self.name, graph)
        if graph.num_classes > self.most_classes:
            raise FglauditError(
                f"a report tells at most most_classes classes apart; got {graph.num_classes} for {self.most_classes}; "
                "raise most_classes"
            )

    def structure(self, graph: FederatedGraph) -> Structure:
        read = self.code_hops if self.width else ()
        reports = len(self.hops) * graph.num_classes
        codes = Codes(self.width, self.code_seed, max(read or self.hops), read, reports)
        training = self.head(self.rounds).averaging().training()
        features_from = self.inputs(graph) - self.head(1).width(graph.num_features)
        said = Reports(graph.num_classes, read_after=self.hops, weight=self.report_weight)
        return Structure((codes, said, Models("weights", features_from), training))

    def layer_inputs(self, graph: FederatedGraph, clients: Sequence[ClientGraph]) -> tuple[Tensor, Tensor] | None:
        """The training nodes' own rows, with ``pseudo_labels`` also the validation nodes', which the encoder's rounds
        alone read; None with ``own-subgraph``, where the encoder reads other rows than the rounds after it."""
        if self.features_at_home != OWN_ROW:
            return None
        return self.head(1).training_rows(training(clients) if self.pseudo_labels else clients, graph.num_nodes)

    def releases(self, graph: FederatedGraph) -> tuple[Release, ...]:
        """The reports, once. If inputs hold more than a node's own row, models are a release of reporting nodes' rows
        too."""
        alone = self.features_at_home == OWN_ROW
        also = " and validation" if self.pseudo_labels else ""
        why = (
            f"the encoder is trained on the rows of training{also} nodes, which models carry, and settings are chosen "
            "on validation nodes"
        )
        if not alone:
            why = f"rows up to {HOME_HOPS[self.features_at_home]} own steps from a training node enter the models"
        reports = Release(ClassReports, 1, None, REPORTING_NODE, alone, why, fields=("values",), one_message=True)
        models = Release(ModelUpdate, self.num_rounds, None, REPORTING_NODE, False, why)
        return (reports,) if alone else (reports, models)

    def cross_edges(self, graph: FederatedGraph) -> bool:
        """Reports and codes are propagated over all edges."""
        return True

    def examples(self, graph: FederatedGraph) -> Examples | str:
        """A node's loss sees features of its own client's nodes alone; what reports carry is not counted here."""
        if self.pseudo_labels:
            return LEFT_OUT
        hops = HOME_HOPS[self.features_at_home]
        passes = self.num_rounds * self.local_steps
        return node_examples(graph, passes=passes, hops=hops, by_degree=hops > 0)

    def uploads(self, graph: FederatedGraph) -> Uploads:
        return self.head(self.rounds).averaging().uploads(graph)

    def aggregates(self, graph: FederatedGraph) -> Mapping[type[Payload], Aggregate]:
        """Of models the server takes the mean."""
        layout = self.head(self.rounds).layout(self.inputs(graph), graph.num_classes)
        return averaged_models(layout, graph.num_clients, len(trainers(graph)), self.num_rounds)

    def readers(self) -> Mapping[type[Payload], str]:
        return {
            ClassReports: "reports are passed on in the clear: k-ary-response makes them safe to read",
            HopSums: "rows made of public codes and of reports are sent in the clear: they hold no other feature",
        }

    def inputs(self, graph: FederatedGraph) -> int:
        """Return how many numbers a node's input has."""
        propagated = len(self.hops) * graph.num_classes + (len(self.code_hops) * self.width if self.width else 0)
        return propagated + self.head(1).width(graph.num_features)

    def train(self, graph: FederatedGraph, channel: Channel, *, rng: torch.Generator, device: torch.device) -> Trained:
        self.check(graph)
        clients = [channel.prepare(graph.client(k)) for k in range(graph.num_clients)]
        edges = KeptEdges.of(clients, graph.degrees()).to(device)
        exchange, classes = HopExchange.of(edges, graph.num_clients), graph.num_classes
        codes = self.codes(exchange, graph.num_nodes, channel, device)
        home = self.head(1).home(clients, graph.num_nodes, device)
        alone = replace(self.head(1), features_at_home=OWN_ROW).home(clients, graph.num_nodes, device)
        no_reports = home.new_zeros(graph.num_nodes, len(self.hops) * classes)
        stages: list[Trained] = []

        def trained(holders: Sequence[ClientGraph], inputs: Tensor, rounds: int) -> Tensor:
            """Train on with ``inputs`` [N, D]; return the classes that the new model predicts from them [N]."""
            start = stages[-1].weights["layers.0.weight"].flatten() if stages else None
            after = sum(len(stage.accuracy_global) for stage in stages)
            head, of = self.head(rounds), self.num_rounds
            stages.append(head.train(holders, edges, inputs, classes, channel, rng, start, after, of))
            return (inputs @ stages[-1].weights["layers.0.weight"].to(device)).argmax(1)

        labelled = clients
        if self.pseudo_labels:
            predicted = trained(clients, torch.cat([no_reports, codes, home], 1), self.rounds)
            labelled = with_pseudo_labels(clients, predicted)
        own = torch.cat([no_reports, torch.zeros_like(codes), alone], 1)
        predicted = trained(labelled, own, self.encoder_rounds)
        reports = self.report(predicted, classes, exchange, edges, channel)
        trained(clients, torch.cat([self.report_weight * reports, codes, home], 1), self.rounds)
        notes = (*stages[-1].notes, *(remarks(clients) if self.pseudo_labels else ()))
        return replace(Trained.of_stages(stages), truth={PREDICTED_CLASSES: predicted.cpu()}, notes=notes)

    def codes(self, exchange: HopExchange, num_nodes: int, channel: Channel, device: torch.device) -> Tensor:
        """Return the propagated codes [N, D] at length 1; D = 0 without codes."""
        start = public_codes(num_nodes, self.width, self.code_seed).to(device)
        if self.width == 0:
            return start
        return joined(exchange.steps(start, exchange.public(start), self.code_hops, channel))

    def report(
        self, predicted: Tensor, classes: int, exchange: HopExchange, edges: KeptEdges, channel: Channel
    ) -> Tensor:
        """Have every node report its class ``predicted`` [N]; return the propagated reports [N, D] at length 1."""
        owned = (edges.owner >= 0).nonzero().squeeze(1)
        owned = owned[torch.argsort(edges.owner[owned], stable=True)]
        senders, now = torch.arange(exchange.num_clients), self.reported_after
        splits = row_starts(edges.owner[owned].cpu(), exchange.num_clients)
        payload = ClassReports(owned.cpu(), one_hot(predicted[owned], classes).float())
        arrived = to_server(channel, now, senders, payload, splits)
        held = arrived.values.new_zeros(len(predicted), classes).to(predicted.device)
        held[owned] = arrived.values.to(held)
        passed = exchange.pass_on(held, channel, now, ClassReports)
        return joined(exchange.steps(held - 1 / classes, passed - 1 / classes, self.hops, channel, now))
