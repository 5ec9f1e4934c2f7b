"""Observers in plain words: who they are, and what they see and know."""

from __future__ import annotations

from fglaudit.reports.numbers import percent


def observer_label(observer: tuple[str, str]) -> str:
    """Short name of (parties, knowledge) for columns and legends."""
    parties, knowledge = observer
    who = _parties(parties)
    extra = (
        knowledge.replace("_", " ")
        .replace(";", ", ")
        .replace("no-degrees", "no degrees")
        .replace("auxiliary=", "auxiliary ")
    )
    return f"{who} ({extra})" if extra else who


def _parties(parties: str) -> str:
    names = [p for p in parties.split("+") if p]
    if not names:
        return "No observer"
    clients = [p.removeprefix("client:") for p in names if p.startswith("client:")]
    rest = ["wiretap" if p == "wire" else p for p in names if not p.startswith("client:")]
    words = []
    if clients == ["each"]:
        words.append("one client")
    elif len(clients) == 1:
        words.append(f"client {clients[0]}")
    elif clients:
        named = ["each of the others" if c == "each" else c for c in clients]
        words.append(f"clients {', '.join(named[:-1])} and {named[-1]}")
    text = " + ".join([*rest, *words])
    return text[:1].upper() + text[1:]


def observer_subject(observer: tuple[str, str]) -> str:
    """The observer as the subject of a sentence about what it does."""
    label = observer_label(observer)
    if "+" in observer[0]:
        return f"The coalition of {label[:1].lower()}{label[1:]}"
    first, space, rest = label.partition(" ")
    return {"Server": "The server", "Wiretap": "A wiretap"}.get(first, first) + space + rest


def threat_model(observer: tuple[str, str]) -> str:
    """The threat model in full sentences: who, what is seen, what is known beforehand."""
    parties, knowledge = observer
    names = [p for p in parties.split("+") if p]
    has_server, clients = "server" in names, [p for p in names if p.startswith("client:")]
    if names == ["wire"]:
        sees = "Somebody who reads the network: every message as it is sent, and the data of no party."
    elif "wire" in names:
        who = "One client, every client in turn," if clients == ["client:each"] else _parties("+".join(clients))
        sees = f"{who} and somebody who reads the network: every message as it is sent, read with the clients' keys."
    elif clients and has_server:
        who = "one client, every client in turn," if clients == ["client:each"] else _parties("+".join(clients)).lower()
        sees = f"The server and {who} put together all they receive and send, and what the client side holds itself."
    elif has_server:
        sees = "The server alone: every message that it receives or sends. It owns no data."
    elif clients == ["client:each"]:
        sees = (
            "One client alone: its own rows, edges and labels, and every message that it receives or sends. "
            "Every client is tried in turn and the results are pooled."
        )
    elif len(clients) == 1:
        sees = (
            f"{_parties(parties)} alone: its own rows, edges and labels, and every message that it receives or sends."
        )
    elif clients:
        sees = (
            f"{_parties(parties)} collude: they put together their own data and every message that they receive or"
            " send."
        )
    else:
        sees = "No observer was set up, because the cell ended before."
    return f"{sees} {_known(knowledge, bool(clients))}".strip()


def _known(knowledge: str, owns_data: bool) -> str:
    words = [w for w in knowledge.split(";") if w]
    facts = {
        "topology": "every edge of the graph",
        "initial_weights": "the first model",
        "degrees": "the degree of every node",
    }
    known = [facts[w] for w in words if w in facts]
    known += [
        f"features and labels of {percent(float(w.partition('=')[2]))} of all nodes (not counted as targets)"
        for w in words
        if w.startswith("auxiliary=")
    ]
    known += [
        f"in half of these not the sensitive columns {w.partition('=')[2].replace('+', ', ')}"
        for w in words
        if w.startswith("sensitive=")
    ]
    said = ("auxiliary=", "sensitive=")
    other = [w for w in words if w not in facts and w != "no-degrees" and not w.startswith(said)]
    if owns_data and "degrees" not in words and "topology" not in words:
        if "no-degrees" in words:
            other.append("but not the degrees of its neighbours at other clients")
        else:
            known.append("the degrees of its neighbours at other clients")
    return f"Knows beforehand: {', '.join([*known, *other])}." if known or other else "Knows nothing else beforehand."
