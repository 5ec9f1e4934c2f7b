"""Threshold encryption: who opens what, what it costs on the wire, and what is said where OpenFHE is not there."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scored_runs import finding_of

from fglaudit.attacks.sums.row_presence import RowPresence
from fglaudit.attacks.sums.server_partial_sums import ServerPartialSums
from fglaudit.defenses.encryption.homomorphic_encryption import HomomorphicEncryption
from fglaudit.defenses.encryption.packed_session import PackedSealer
from fglaudit.defenses.encryption.threshold_encryption import ThresholdEncryption, ThresholdSession
from fglaudit.defenses.none import NoDefense
from fglaudit.empirical.judge import judge
from fglaudit.empirical.sealed.coalitions import coalitions_audit
from fglaudit.empirical.sealed.replay import SealedTrace, sealed_replay
from fglaudit.errors import FglauditError
from fglaudit.facts import Sealed, first
from fglaudit.finding import Status
from fglaudit.guarantees import Audit, Outcome, Word
from fglaudit.he import openfhe_process, openfhe_worker
from fglaudit.he.fixed_point import FixedPoint, per_slot
from fglaudit.he.keys import MOST_BITS
from fglaudit.he.layout import Layout
from fglaudit.he.threshold_bfv import SLOT_BITS, WIDTHS, ThresholdBfv
from fglaudit.observers import ObserverSpec
from fglaudit.payloads import SERVER, Ciphertexts, NeighborSums
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.testing import CPU, Run, example_graph, record
from fglaudit.view import Observer

GRAPH = example_graph(nodes=60, clients=3)
SUMS = FedGCN(hops=1, rounds=2)
openfhe = pytest.mark.skipif(openfhe_process.missing() is not None, reason=str(openfhe_process.missing()))


def test_without_an_interpreter_it_is_refused_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    defense, context = ThresholdEncryption(), SUMS.context(GRAPH)
    monkeypatch.delenv(openfhe_process.PYTHON, raising=False)
    assert "FGLAUDIT_OPENFHE_PYTHON is not set" in (defense.unsupported(context) or "")
    for python in ("/no/such/python", "/bin/false"):
        monkeypatch.setenv(openfhe_process.PYTHON, python)
        why = defense.unsupported(context)
        assert why is not None and python in why and "pip install openfhe" in why
        with pytest.raises(FglauditError, match="pip install openfhe"):
            defense.bind(context)


def test_what_it_cannot_serve_is_refused_before_openfhe_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(openfhe_process.PYTHON, raising=False)
    with pytest.raises(FglauditError, match="4, 8, 14, 18, 28"):
        ThresholdEncryption(bits=56)
    models = ThresholdEncryption(on=("ModelUpdate",)).unsupported(SUMS.context(GRAPH))
    assert models is not None and "scheme: ckks" in models
    padded = ThresholdEncryption(padded=True).unsupported(FedGCN(hops=2, rounds=2).context(GRAPH))
    assert padded is not None and "padding hides nothing" in padded
    many = replace(SUMS.context(GRAPH), num_clients=101)
    assert "2 to 100 clients" in (ThresholdEncryption().unsupported(many) or "")


def test_plaintext_moduli_are_primes_with_slots_for_every_ring() -> None:
    for number in range(39, 300, 2):
        assert openfhe_worker.is_prime(number) == all(number % divisor for divisor in range(3, number, 2))
    for bits in (20, SLOT_BITS):
        prime = openfhe_worker.plaintext_modulus(bits)
        assert prime > 2 ** (bits + 2) and (prime - 1) % 2**16 == 0 and openfhe_worker.is_prime(prime)


@openfhe
@pytest.mark.parametrize("signed", [False, True])
def test_sums_are_exact_with_all_shares_and_nonsense_with_fewer(signed: bool) -> None:
    code = FixedPoint.of_counts(torch.tensor([100.0]), signed=signed, widths=WIDTHS)
    codec, width = ThresholdBfv(3, code, 3), int(code.width[0])
    codec.check_budget(3)
    assert sum(codec.parameters.prime_bits) <= MOST_BITS[codec.parameters.degree]
    room = codec.parameters.slots * per_slot(width, SLOT_BITS)
    drawn = [
        torch.randint(-33 if signed else 0, 34, (2, room), generator=torch.Generator().manual_seed(k)) for k in range(3)
    ]
    sent = [codec.encrypt(values, width) for values in drawn]
    totals = [codec.total(each) for each in zip(*sent, strict=True)]
    assert torch.equal(codec.decrypt(totals, width), sum(drawn, torch.zeros(2, room, dtype=torch.long)))
    assert torch.equal(codec.decrypt(sent[1], width), drawn[1])  # what was added up is as it was
    everything = codec.opened_by([0, 1, 2], totals)
    assert torch.equal(codec.opened_by([2, 0, 1], totals), everything)
    for fewer in ([0], [2], [0, 1], [1, 2], [2, 0]):
        assert float((codec.opened_by(fewer, totals) == everything).double().mean()) < 0.01
    assert {len(blob) for each in sent for blob in each} == {codec.parameters.fresh_bytes}


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    defenses = {"none": NoDefense(), "shared": HomomorphicEncryption(), "threshold": ThresholdEncryption()}
    return {name: record(SUMS, GRAPH, defense) for name, defense in defenses.items()}


@openfhe
def test_a_coalition_reads_what_its_clients_sent_and_got(runs: dict[str, Run]) -> None:
    run = runs["threshold"]
    for parties in ((SERVER, 0), (SERVER, 0, 1), (0, 1)):
        view = run.view(Observer(parties=parties))
        clients = set(view.observer.clients)
        batches = list(view.messages.of(NeighborSums))
        sent = {int(s) for batch in batches for s in batch.senders if int(s) != SERVER}
        got = {int(r) for batch in batches for r in batch.receivers if int(r) != SERVER}
        assert sent == got == clients
    assert not list(run.view(Observer(parties=(SERVER,))).messages.of(NeighborSums))
    assert list(run.view(Observer(parties=(SERVER,))).messages.of(Ciphertexts))
    everybody = run.view(Observer(parties=(SERVER, 0, 1, 2)))
    assert {int(s) for batch in everybody.messages.of(NeighborSums) for s in batch.senders} == {SERVER, 0, 1, 2}


@openfhe
def test_the_server_with_a_client_reads_rows_under_a_shared_key_and_none_here(runs: dict[str, Run]) -> None:
    together = ObserverSpec(("server", "client:0"))
    exact = {name: finding_of(run, ServerPartialSums(), together).exact_rate or 0.0 for name, run in runs.items()}
    assert exact["none"] > 0.2 and exact["shared"] > 0.2 and exact["threshold"] == 0
    presence = finding_of(runs["threshold"], RowPresence(), together)
    assert presence.status is Status.OK and presence.value == 1.0  # ciphertexts still name their rows


@openfhe
def test_training_is_the_same_and_bytes_count_keys_and_partial_decryptions(runs: dict[str, Run]) -> None:
    plain, sealed = runs["shared"], runs["threshold"]
    assert sealed.trained.accuracy == pytest.approx(plain.trained.accuracy, abs=1e-6)
    codec, layout = sealer_of(sealed).codec, sealer_of(sealed).layout
    assert isinstance(codec, ThresholdBfv)
    got = torch.tensor([len(layout.blocks_of(layout.entries_for(nodes, k))) for k, nodes in enumerate(GRAPH.clients)])
    view = runs["none"].view(Observer(parties=(SERVER, 0, 1, 2)))
    clear = runs["none"].channel
    models = torch.stack([clear.bytes_up, clear.bytes_down])
    for batch in view.messages.of(NeighborSums):
        rising = bool((batch.senders != SERVER).all())
        clients = batch.senders if rising else batch.receivers
        models[0 if rising else 1].index_add_(0, clients, -batch.bytes_per_message())
    # The public key is made in turn and passed round; every ciphertext of another client's total costs a partial
    # decryption up, and one of its own costs two down, those of the others.
    up = sealed.channel.bytes_up - models[0] - 2 * codec.key_bytes - (got.sum() - got) * codec.share_bytes
    down = sealed.channel.bytes_down - models[1] - 2 * codec.key_bytes - 2 * got * codec.share_bytes
    size = codec.parameters.fresh_bytes
    assert bool((up // size > 0).all()) and bool((up % size < 0.01 * size).all())  # beside them, ids of the rows
    assert torch.equal(down // size, got) and bool((down % size < 0.01 * size).all())


def sealer_of(run: Run) -> PackedSealer:
    session = run.session
    assert isinstance(session, ThresholdSession)
    sealer = session.sealers[NeighborSums]
    assert isinstance(sealer, PackedSealer)
    return sealer


@openfhe
def test_it_is_verified_and_says_which_coalitions_open_nothing() -> None:
    run = record(SUMS, GRAPH, ThresholdEncryption())
    verdict, _ = judge(
        SUMS, GRAPH, ThresholdEncryption(), run.session, run.channel.counted, run.truth.unstated, seed=0, device=CPU
    )
    assert verdict.word is Word.VERIFIED, verdict
    assert "more than 2 clients together" in verdict.not_covered and "share of the key" in verdict.reason
    audit = next(audit for audit in verdict.audits if audit.name == "coalitions")
    assert audit.outcome is Outcome.PASSED and "1 to 2 of 3 clients open nothing" in audit.detail
    sealed = first(run.session.facts(), Sealed, NeighborSums)
    assert sealed is not None and sealed.readers == 3


@openfhe
def test_no_ciphertext_is_opened_for_two_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one's partial decryption travels to the other, so that the server would have them all."""
    sums, graph = replace(SUMS, hops=2), example_graph(nodes=300, features=800, clients=3)

    def audited() -> Audit:
        trace = sealed_replay(sums, graph, ThresholdEncryption(), sums.context(graph), seed=0, device=CPU)
        return coalitions_audit(trace, ())[0]

    assert audited().outcome is Outcome.PASSED
    real = Layout.of
    monkeypatch.setattr(Layout, "of", staticmethod(lambda *args, apart: real(*args)))
    broken = audited()
    assert broken.outcome is Outcome.REFUTED and "opened for several clients" in broken.detail


@openfhe
def test_a_share_that_opens_alone_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: whatever the coalition, all shares are used, as under a shared key."""
    defense, context = ThresholdEncryption(), SUMS.context(GRAPH)
    trace: SealedTrace = sealed_replay(SUMS, GRAPH, defense, context, seed=0, device=CPU)
    (honest,) = coalitions_audit(trace, ())
    assert honest.outcome is Outcome.PASSED
    real = ThresholdBfv.opened_by
    monkeypatch.setattr(ThresholdBfv, "opened_by", lambda self, holders, c: real(self, range(self.parties), c))
    (broken,) = coalitions_audit(trace, ())
    assert broken.outcome is Outcome.REFUTED and "open 100.0 %" in broken.detail
