"""One row of ``findings.csv``, and the record of one cell that holds its rows.

Column names and their order are a contract that other people's scripts rely on: add columns at the end, rename none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any

from fglaudit.guarantees import FieldState, Verdict, Word, exceeded, verdict_from_json

ADAPTED = "yes"
"""The column ``adapted`` of an attack that allows for everything that was done to the messages it reads."""

UNSTATED = "Unstated"
"""In the column ``adapted``: something was done that no fact states."""
LEARNED = "messages whose meaning is learned"
"""In the column ``adapted``: what a low score of this attack says nothing of, whatever was done to messages."""

OTHERS = "an attack that is no part of fglaudit"
"""In the column ``adapted`` of another author's attack that says that it allows for everything: that, and the leak that
it proves itself on, are its own word, so it may show a leak, never its absence."""

UNDEFENDED = "none"
"""The column ``defense`` of a cell whose messages leave as the protocol computes them."""

YES, NO = "yes", "no"
"""What the column ``succeeds_weakened`` may say."""


class Cause(StrEnum):
    """What a row's ``reason`` comes to, where more is made of it than shown: in the record, not in the tables."""

    OTHER = ""
    NOT_RUN = "not run"  # its cell is planned and has not run
    SEALED = "sealed"  # the observer was sent what the attack reads, but no key to it
    NO_ROW = "no row"  # nobody's features reach the observer
    RAISED = "raised"  # ``succeeds_weakened`` is "no" because something raised: nothing was measured


class Reason(str):
    """Why there is no figure, in words, with its cause."""

    cause: Cause

    def __new__(cls, words: str, cause: Cause) -> Reason:
        made = super().__new__(cls, words)
        made.cause = cause
        return made


NOT_RUN = Reason("not run: the suite stopped before this cell; the same run command continues it", Cause.NOT_RUN)
"""The reason of rows of planned cells that have not run: they are stored as failed."""
RAISED = "asked through the defense again, "
"""What stands before what was raised, in a reason."""

INTERVALS = ("beta-binomial", "cluster jackknife", "range", "")
"""What the column ``interval`` may say; "range" is the range over fewer than 5 clusters, which shows nothing."""
CLUSTER_COLUMNS, RANKED_COLUMNS = 4, 8
"""Numbers per cluster in a record; rankings have four more, of their negatives."""


_UNADAPTED = "no: "


def adapted_column(names: Iterable[str]) -> str:
    """Return the column ``adapted`` of an attack that does not allow for the facts of these ``names``."""
    said = ", ".join(names)
    return f"{_UNADAPTED}{said}" if said else ADAPTED


_RECORD_ONLY = {"table": False}
"""Marks what a record holds of a row beyond the columns of the tables."""


class Status(StrEnum):
    OK = "ok"
    NOT_APPLICABLE = "not-applicable"
    FAILED = "failed"
    BROKEN_ATTACK = "broken-attack"


@dataclass(frozen=True)
class Finding:
    """Leakage of one attack by one observer on one cell. None is an empty field. Rates and accuracies are in [0, 1]."""

    suite: str
    cell: str
    dataset: str
    partition: str
    clients: int
    protocol: str
    protocol_args: str
    server: str
    defense: str
    defense_args: str
    seed: int
    observer: str
    observer_knowledge: str
    attack: str
    status: Status
    reason: str = ""
    accuracy: float | None = None
    accuracy_global: float | None = None
    targets: int | None = None
    metric: str = ""
    value: float | None = None
    control: float | None = None
    advantage: float | None = None
    advantage_low: float | None = None
    advantage_high: float | None = None
    exact_rate: float | None = None
    matched_rate: float | None = None
    cosine: float | None = None
    f1: float | None = None
    auc: float | None = None
    relative_error: float | None = None
    tpr_at_fpr_1: float | None = None
    tv_error: float | None = None
    control_exact_rate: float | None = None
    control_cosine: float | None = None
    control_f1: float | None = None
    control_auc: float | None = None
    identifiable_rate: float | None = None
    epsilon_claimed: float | None = None
    epsilon_accounted: float | None = None
    epsilon_empirical: float | None = None
    delta: float | None = None
    privacy_unit: str = ""
    mechanism: str = ""
    releases: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    ciphertext_bytes: int | None = None
    seconds_train: float | None = None
    seconds_attack: float | None = None
    device: str = ""
    interval: str = ""  # "beta-binomial" | "cluster jackknife" | "range" (fewer than 5 clusters: too few parties) | ""
    worst_decile: float | None = None  # mean F1 over the tenth of the targets that are rebuilt best
    f1_unproven: float | None = None  # F1 over the rows that were not proven, with its control
    control_f1_unproven: float | None = None
    direction_rate: float | None = (
        None  # share of targets whose row was found up to a factor, whatever node it was assigned to
    )
    claimed_rate: float | None = None  # rows the attack asserts per target, and the share of them that are nobody's
    false_claim_rate: float | None = None
    quantity: str = ""  # what the attack infers: "features" or a name of fglaudit.quantities.QUANTITIES
    epsilon_p_value: float | None = None  # of "the true epsilon is at most the accounted one", by replays with a canary
    adapted: str = ""  # "yes", or "no: FACT": what was done to the messages that the attack does not allow for
    worst_client: float | None = None  # largest advantage in any one client (cluster)
    guarantee: str = ""  # verified | claimed | refuted | none, towards this observer: see fglaudit.guarantees
    succeeds_weakened: str = ""  # yes | no: through the same defense at next to no strength; "" where it was not asked
    tpr_at_fpr_01: float | None = None  # members found at 0.1 % false ones; "" below 1000 non-members
    tpr_at_fpr_1_low: float | None = None  # 95 % interval of members found at 1 % false ones, over nodes of both kinds
    tpr_at_fpr_1_high: float | None = None
    control_class: float | None = None  # where nodes report a class: the metric of a guess told the one each predicts,
    advantage_class: float | None = None  # and the advantage over it, with its 95 % interval
    advantage_class_low: float | None = None
    advantage_class_high: float | None = None
    accuracy_balanced: float | None = None  # mean over classes of the share of their test nodes that are named right
    dataset_args: str = ""  # what tells graphs of one name apart: see fglaudit.suite.cell.dataset_arguments
    unique_exact: int | None = None  # rows that one node alone has and one observer has exactly, a guess or noise not
    cause: Cause = field(default=Cause.OTHER, metadata=_RECORD_ONLY)

    def ended(self, status: Status, reason: str) -> Finding:
        """Return the row with this ``status`` and ``reason``, and the cause where the reason is a :class:`Reason`."""
        cause = reason.cause if isinstance(reason, Reason) else Cause.OTHER
        return replace(self, status=status, reason=str(reason), cause=cause)

    @property
    def key(self) -> str:
        """What a record keeps this row's clusters, examples and breakdown under."""
        return f"{self.observer}|{self.observer_knowledge}|{self.attack}"

    @property
    def undefended(self) -> bool:
        """Whether its cell has no defense."""
        return self.defense == UNDEFENDED

    @property
    def exceeded(self) -> str:
        """How its epsilons contradict each other; empty where they do not."""
        return exceeded(self.epsilon_empirical, self.epsilon_accounted)

    @property
    def never_run(self) -> bool:
        """Whether it stands for a cell that is planned and has not run."""
        return self.cause is Cause.NOT_RUN

    @property
    def outcome(self) -> str:
        """The status in words: of a cell that the run has not come to, every row is kept as failed."""
        return Cause.NOT_RUN.value if self.never_run else self.status.value

    @property
    def lost(self) -> bool:
        """Whether something went wrong: it failed, or its attack is broken."""
        return self.status in (Status.FAILED, Status.BROKEN_ATTACK) and not self.never_run

    @property
    def unadapted(self) -> tuple[str, ...]:
        """What was done to the messages that the attack does not allow for: what :func:`adapted_column` was made of."""
        return tuple(self.adapted.removeprefix(_UNADAPTED).split(", ")) if self.adapted.startswith(_UNADAPTED) else ()

    @property
    def sealed(self) -> bool:
        """Whether the observer was sent what the attack reads as ciphertexts, without a key."""
        return self.cause is Cause.SEALED

    @property
    def raised(self) -> str:
        """The reason, where the attack could not be asked through the weakened defense since something raised."""
        return self.reason if self.cause is Cause.RAISED else ""

    @property
    def confused(self) -> bool:
        """Whether the attack does significantly worse than its control."""
        return self.advantage_high is not None and self.advantage_high < 0

    @property
    def can_reassure(self) -> bool:
        """Whether a low advantage says anything: the attack works, allows for all that was done to the messages, is
        not confused, and was not seen to fail through the same defense at no strength (rule 4). Any other row may show
        a leak, never its absence (rule 11)."""
        able = self.adapted == ADAPTED and self.succeeds_weakened != NO
        return self.status is Status.OK and able and not self.confused


COLUMNS: tuple[str, ...] = tuple(f.name for f in fields(Finding) if f.metadata != _RECORD_ONLY)
"""Those of ``findings.csv``, in their order."""


@dataclass(frozen=True)
class CellRecord:
    """Everything kept of one finished cell; stored as JSON.

    Attributes:
        cell: content hash, the file's name.
        description: the cell as a suite would name it: dataset, partition, protocol, server, defense, seed (plain
            JSON).
        findings: one per observer x attack, at least one whatever happened.
        clusters: by "observer|observer_knowledge|attack": per cluster (client, each at its place) the number of targets
            and the sums of the control and of what the attack gained and lost against it, in the primary metric on the
            scale [0, 1], so that intervals over several seeds can be formed later (``fglaudit.scoring.metrics``).
        breakdowns: by the same key: the primary metric by degree bucket, class and client, for the report.
        examples: by the same key: a few true rows beside the rebuilt ones, see ``fglaudit.quantities.rows.examples``.
        partition_facts: missing links, label heterogeneity, client sizes, and a digest that is equal where clients hold
            the same nodes.
        history: client-mean and whole-test accuracy per round; ``right``: 1 or 0 for every test place, by node id.
        notes: warnings a reader must see.
        verdict: what is said of the defense's guarantee; None where it was not judged.
        fields: what protects every field that is sent: the rows of ``guarantees.csv``.
    """

    cell: str
    description: dict[str, Any]
    findings: tuple[Finding, ...]
    clusters: dict[str, list[list[float]]] = field(default_factory=dict)
    breakdowns: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    examples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    partition_facts: dict[str, Any] = field(default_factory=dict)
    history: dict[str, list[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    verdict: Verdict | None = None
    fields: tuple[FieldState, ...] = ()

    @property
    def seed(self) -> int:
        return self.findings[0].seed

    @property
    def refuted(self) -> str | None:
        """Why its guarantee is refuted, empty where a row says so alone; None where it is not."""
        if self.verdict is not None and self.verdict.word is Word.REFUTED:
            return self.verdict.reason
        if why := next(filter(None, (row.exceeded for row in self.findings)), ""):
            return why
        return "" if any(row.guarantee == Word.REFUTED for row in self.findings) else None

    @property
    def nodes(self) -> int:
        """How many nodes clients hold; 0 where it is not known."""
        sizes = self.partition_facts.get("client_sizes", [])
        return sum(int(size) for size in sizes) if isinstance(sizes, list) else 0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON, which shares its mappings: ``asdict`` copies every value, most of a long run's
        time."""
        return {
            **vars(self),
            "findings": [dict(vars(row)) for row in self.findings],
            "verdict": None if self.verdict is None else asdict(self.verdict),
            "fields": [dict(vars(row)) for row in self.fields],
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> CellRecord:
        """Read back :meth:`to_json`."""
        findings = tuple(
            Finding(**{**row, "status": Status(row["status"]), "cause": Cause(row["cause"])})
            for row in data["findings"]
        )
        stored = data["verdict"]
        return CellRecord(
            **{
                **data,
                "findings": findings,
                "notes": tuple(data["notes"]),
                "verdict": None if stored is None else verdict_from_json(stored),
                "fields": tuple(FieldState.from_json(row) for row in data["fields"]),
            }
        )
