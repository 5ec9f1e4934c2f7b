"""Private reports: what enters a report, what enters anything else, and what is promised to whom."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from fglaudit.defenses.noise.k_ary_response import KAryResponse
from fglaudit.defenses.training.dp_sgd import DpSgd
from fglaudit.errors import FglauditError
from fglaudit.execution.weakened import NEXT_TO_NONE
from fglaudit.facts.explaining import plausible_reports
from fglaudit.federated.home_head import AtHome
from fglaudit.graph import FederatedGraph
from fglaudit.nn.responses import keep_probability
from fglaudit.payloads import SERVER, ClassReports, HopSums, MessageBatch, ModelUpdate
from fglaudit.privacy.accounted import Accounted
from fglaudit.privacy.accounting import Relation, epsilon_of
from fglaudit.privacy.counted import Counted, Sent
from fglaudit.privacy.from_facts import account
from fglaudit.privacy.noise_on_payloads import Way, noised_release
from fglaudit.protocols.private.private_reports import PrivateReports
from fglaudit.protocols.private.structure_only import StructureOnly
from fglaudit.rng import derive
from fglaudit.testing import Run, example_graph, record
from fglaudit.view import Observer

SMALL = PrivateReports(hops=(1, 2), code_hops=(2,), width=8, encoder_rounds=3, rounds=2)
PSEUDO = dataclasses.replace(SMALL, pseudo_labels=True)
EVERYBODY = Observer(wire=True)


def reported(run: Run) -> tuple[Tensor, Tensor]:
    """Return the nodes and the classes that the server received."""
    batch = next(iter(run.transcript.seen_by(EVERYBODY).of(ClassReports)))
    assert isinstance(batch.payload, ClassReports) and bool((batch.receivers == SERVER).all())
    return batch.payload.nodes, batch.payload.values.argmax(1)


def with_other_row(graph: FederatedGraph, node: int) -> FederatedGraph:
    """Return ``graph`` with the opposite row for ``node``."""
    x = graph.x.clone()
    x[node] = 1 - x[node]
    return dataclasses.replace(graph, x=x)


def a_test_node(graph: FederatedGraph) -> int:
    """Return a node in neither the training nor the validation set."""
    return int(graph.clients[0][graph.test[0]][0].item())


@pytest.mark.parametrize("protocol", [SMALL, PSEUDO])
def test_a_reporting_nodes_row_enters_its_own_report_alone(protocol: PrivateReports) -> None:
    """Whatever else is sent depends on its row only through the report: with equal reports all messages are equal."""
    graph = example_graph()
    node = a_test_node(graph)
    one = record(protocol, graph)
    _, classes = reported(one)

    def same_report(batch: MessageBatch, payload: object) -> object:
        if not isinstance(payload, ClassReports) or not bool((batch.receivers == SERVER).all()):
            return payload
        values = torch.nn.functional.one_hot(classes, payload.values.shape[1]).float()
        return ClassReports(payload.nodes, values)

    two = record(protocol, with_other_row(graph, node), tamper=same_report)  # type: ignore[arg-type]
    for kind in (ModelUpdate, HopSums):
        pairs = zip(*(run.transcript.seen_by(EVERYBODY).of(kind) for run in (one, two)), strict=True)
        assert all(
            torch.equal(a, b)
            for x, y in pairs
            for a, b in zip(x.payload.tensors().values(), y.payload.tensors().values(), strict=True)
        )


def models(run: Run) -> list[Tensor]:
    """Return what the server received of models, by round."""
    batches = run.transcript.seen_by(EVERYBODY).of(ModelUpdate)
    return [batch.payload.vector for batch in batches if bool((batch.receivers == SERVER).all())]  # type: ignore[attr-defined]


def nodes_of(graph: FederatedGraph, *masks: tuple[Tensor, ...]) -> Tensor:
    """Return the nodes that are in one of the ``masks``."""
    return torch.cat([ids[mask] for masks_ in masks for ids, mask in zip(graph.clients, masks_, strict=True)])


def test_pseudo_labels_train_the_encoder_on_validation_rows_and_no_named_node_s() -> None:
    """All rows of reporting nodes replaced: every model up to the reports is equal, bit for bit. One validation row
    replaced: those of the rounds before the encoder are equal, and the encoder's are not."""
    graph = example_graph()
    before, until = PSEUDO.rounds, PSEUDO.reported_after
    plain = models(record(PSEUDO, graph))
    assert len(plain) == PSEUDO.num_rounds == 7 and until == 5
    x = graph.x.clone()
    named = torch.ones(graph.num_nodes, dtype=torch.bool)
    named[nodes_of(graph, graph.train, graph.val)] = False
    x[named] = 1 - x[named]
    others = models(record(PSEUDO, dataclasses.replace(graph, x=x)))
    assert all(torch.equal(a, b) for a, b in zip(plain[:until], others[:until], strict=True))
    assert not torch.equal(plain[-1], others[-1])  # their reports are others
    validating = int(nodes_of(graph, graph.val)[0].item())
    moved = models(record(PSEUDO, with_other_row(graph, validating)))
    assert all(torch.equal(a, b) for a, b in zip(plain[:before], moved[:before], strict=True))
    assert not torch.equal(plain[before], moved[before])


def test_pseudo_labels_use_no_label_of_a_validation_node() -> None:
    """Settings are chosen by these labels, so no model may have seen them."""
    graph = example_graph()
    y = graph.y.clone()
    validating = nodes_of(graph, graph.val)
    y[validating] = (y[validating] + 1) % graph.num_classes
    one, two = (models(record(PSEUDO, dataclasses.replace(graph, y=labels))) for labels in (graph.y, y))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_pseudo_labels_are_refused_where_a_guarantee_names_validation_nodes() -> None:
    graph = example_graph()
    context = PSEUDO.context(graph)
    why = KAryResponse(unit="node").unsupported(context)
    assert why is not None and "training and validation nodes" in why
    assert "pseudo_labels: false" in (DpSgd().unsupported(context) or "")
    assert KAryResponse().unsupported(context) is None


def test_pseudo_labels_without_validation_nodes_are_noted() -> None:
    graph = example_graph()
    assert not record(PSEUDO, graph).recording.notes
    nobody = tuple(torch.zeros_like(val) for val in graph.val)
    notes = record(PSEUDO, dataclasses.replace(graph, val=nobody)).recording.notes
    assert notes == ("pseudo_labels changed nothing: no client has both training and validation nodes",)


def test_with_the_own_subgraph_it_enters_models_and_no_epsilon_is_stated() -> None:
    graph = example_graph()
    protocol = dataclasses.replace(SMALL, features_at_home="own-subgraph")
    run = record(protocol, graph, KAryResponse(epsilon=2.0))
    assert run.recording.guarantee.epsilon_accounted is None
    assert "own steps" in run.recording.guarantee.mechanism


def test_every_node_reports_once_in_one_message() -> None:
    nodes, _ = reported(record(SMALL))
    assert torch.equal(nodes.sort().values, torch.arange(60))


def test_the_epsilon_is_that_of_one_response() -> None:
    """Between any two true classes a report is e^epsilon times as likely at most: the ratio of the probabilities."""
    run = record(SMALL, defense=KAryResponse(epsilon=1.5))
    promise = run.recording.guarantee
    assert promise.epsilon_accounted == pytest.approx(1.5)
    assert promise.unit == "reporting node" and promise.delta == 0
    keep = keep_probability(1.5, 3)
    assert math.log(keep / ((1 - keep) / 2)) == pytest.approx(1.5)


def test_at_next_to_no_strength_reports_are_true_and_an_epsilon_follows_still() -> None:
    """The probability of a lie was no number beside 1, and training through the defense failed."""
    run = record(SMALL, defense=KAryResponse(epsilon=4.0).weakened(NEXT_TO_NONE))
    promise = run.recording.guarantee
    assert promise.epsilon_accounted == pytest.approx(25.0, rel=1e-5)
    assert keep_probability(promise.epsilon_claimed or 0.0, 3) == pytest.approx(1.0, abs=1e-9)


def test_responses_lie_as_often_as_stated_and_evenly() -> None:
    session = KAryResponse(epsilon=1.0).bind(dataclasses.replace(SMALL.context(example_graph()), num_classes=4))
    count = 20000
    values = torch.nn.functional.one_hot(torch.zeros(count, dtype=torch.long), 4).float()
    batch = MessageBatch(
        1,
        torch.tensor([0]),
        torch.tensor([SERVER]),
        ClassReports(torch.arange(count), values),
        torch.tensor([0, count]),
    )
    sent = session.release(batch, derive(0, "responses"))
    assert isinstance(sent, ClassReports)
    share = sent.values.mean(0)
    keep = math.e / (math.e + 3)
    assert torch.allclose(share, torch.tensor([keep, *[(1 - keep) / 3] * 3]), atol=0.02)
    again = session.release(batch, derive(1, "responses"))
    assert isinstance(again, ClassReports) and torch.equal(again.values, sent.values)  # a node reports once


def test_reports_that_lie_less_than_stated_are_noticed() -> None:
    before = torch.nn.functional.one_hot(torch.randint(4, (5000,), generator=derive(0, "classes")), 4).double()
    assert not plausible_reports(before, before, keep=0.5)
    assert not plausible_reports(before, before.roll(1, 1), keep=0.25)  # always the same lie
    assert not plausible_reports(before, before / 2, keep=0.5)


def test_the_accountant_reads_it_from_the_facts() -> None:
    context = SMALL.context(example_graph())
    session = KAryResponse(epsilon=3.0).bind(context)

    class Once:
        def of(self, payload: str, *, by_server: bool) -> Sent:
            return Sent(
                payload, by_server, first_round=3, rounds=1, messages=1, repeats=1, numbers=3, fields=("values",)
            )

    way = noised_release(
        context,
        context.releases[0],
        session.facts(),
        session.guarantee(),
        Relation.REPLACE,
        Once(),  # type: ignore[arg-type]
    )
    assert isinstance(way, Way)
    assert epsilon_of(way.event, 0.0, Relation.REPLACE) == pytest.approx(3.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_that_promises_nothing_is_refused(epsilon: float) -> None:
    with pytest.raises(FglauditError, match="epsilon"):
        KAryResponse(epsilon=epsilon)


def test_a_guarantee_for_every_node_is_refused_with_the_reason() -> None:
    why = KAryResponse(unit="node").unsupported(SMALL.context(example_graph()))
    assert why is not None and "encoder is trained on the rows of training nodes" in why


def test_protocols_without_reports_and_strange_units_are_refused() -> None:
    graph = example_graph()
    assert "ClassReports" in (KAryResponse().unsupported(StructureOnly().context(graph)) or "")
    with pytest.raises(FglauditError, match="unit"):
        KAryResponse(unit="edge")  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [-1, 0, 1])
def test_a_report_that_tells_nothing_is_refused_before_anything_runs(most: int) -> None:
    with pytest.raises(FglauditError, match=f"got most_classes: {most}; raise it"):
        dataclasses.replace(SMALL, most_classes=most)


def test_more_classes_than_a_report_carries_are_refused() -> None:
    with pytest.raises(FglauditError, match="most_classes"):
        dataclasses.replace(SMALL, most_classes=2).check(example_graph())


@pytest.mark.parametrize(
    "fields", [{"hops": ()}, {"features_at_home": "none"}, {"report_weight": 0.0}, {"encoder_rounds": 0}, {"width": -1}]
)
def test_bad_fields_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(FglauditError):
        PrivateReports(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("at_home", ["own-row", "own-subgraph"])
def test_the_accountant_knows_what_else_rows_enter(at_home: AtHome) -> None:
    """With two own hops in the inputs rows move the models too, and no epsilon of reports bounds the whole."""
    context = dataclasses.replace(SMALL, features_at_home=at_home).context(example_graph())
    session = KAryResponse(epsilon=3.0).bind(context)
    sent = Sent("ClassReports", False, first_round=3, rounds=1, messages=1, repeats=1, numbers=3, fields=("values",))
    found = account(context, session.facts(), session.guarantee(), Counted((sent,), (1,) * 3, 0))
    if at_home == "own-row":
        assert isinstance(found, Accounted) and found.epsilon == pytest.approx(3.0)
    else:
        assert found == "ModelUpdate in the clear, so nothing bounds the whole"
