"""Nodes with named attributes and edges between their names, as tables and graph files have them, to arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fglaudit.datasets.npz import MASKS
from fglaudit.datasets.npz_archive import Array
from fglaudit.errors import FglauditError, counted, shown, unknown
from fglaudit.files import limits

LABELS = ("label", "y", "class", "target")
CLIENT = "client"
SPLITS = {"train": "train_mask", "val": "val_mask", "valid": "val_mask", "validation": "val_mask", "test": "test_mask"}
_BLANK = ("", "nan", "na", "null", "none", "?")


@dataclass(frozen=True)
class NodeTable:
    """What a file holds before anything is made of it.

    Attributes:
        names: of the nodes, distinct, in order; edges use them.
        attributes: per node, by name: numbers, text, lists of numbers, or None.
        edges: pairs of names, each with where it stands, for messages.
        where: where each node stands, e.g. ``nodes.csv line 3``.
        unused: what edges have beside their ends: graphs here have no weights.
        named_by: the attribute that names nodes; empty where the format has one place for it.
    """

    names: Sequence[str]
    attributes: Sequence[Mapping[str, Any]]
    edges: Sequence[tuple[str, str, str]]
    where: Sequence[str]
    unused: Sequence[str] = ()
    named_by: str = ""


@dataclass(frozen=True)
class Choice:
    """Which attribute is what.

    Attributes:
        label: None takes the first of ``LABELS`` that is there.
        split: holds train, val, test or nothing; None takes ``split`` if it is there.
        client: says who holds the node, by name or number; None takes ``client`` if it is there.
        drop: attributes that are no features.
    """

    label: str | None = None
    split: str | None = None
    client: str | None = None
    drop: Sequence[str] = ()


def arrays_of(table: NodeTable, choice: Choice) -> tuple[dict[str, Array], list[str]]:
    """Return x, y, edge_index and perhaps masks and clients, and a note for whatever had to be decided.

    Raises:
        FglauditError: no nodes, a name twice, an edge at a node that is not there, text in a feature, no features, no
            labels, or an attribute that is asked for and not there.
    """
    if not table.names:
        raise FglauditError("a graph has at least one node; the file has none; check that it is the right one")
    names = list(dict.fromkeys(key for node in table.attributes for key in node))
    label = _chosen(choice.label, names, LABELS, "label")
    split = choice.split or ("split" if "split" in names else None)
    client = choice.client or (CLIENT if CLIENT in names else None)
    for asked in (*choice.drop, *filter(None, (split, client))):
        if asked not in names:
            raise unknown("attribute of nodes", asked, names)
    features = [name for name in names if name not in (label, split, client, *choice.drop)]
    if not features:
        raise FglauditError(
            f"a graph needs at least one feature; the attributes of its nodes are {', '.join(names)}; add numbers"
        )
    notes: list[str] = []
    if table.named_by:
        notes.append(f"nodes are named by {shown(table.named_by)}, their class is {shown(label)}")
    if table.unused:
        notes.append(f"not used of edges: {shown(', '.join(table.unused))[1:-1]}; every edge counts alike")
    x = _features(table, features, notes)
    y, said = _labels([node.get(label) for node in table.attributes], label)
    notes += said
    found: dict[str, Array] = {"x": x, "y": y, "edge_index": _edges(table)}
    if split is not None:
        found |= _masks(table, split)
    if client is not None:
        found["clients"] = _clients(table, client, notes)
    return found, notes


def _chosen(asked: str | None, names: Sequence[str], usual: Sequence[str], what: str) -> str:
    if asked is not None:
        if asked not in names:
            raise unknown("attribute of nodes", asked, names)
        return asked
    found = next((name for name in usual if name in names), None)
    if found is None:
        raise FglauditError(
            f"nodes need a {what}: an attribute called {', '.join(usual)}, or one named by --{what}; they have"
            f" {shown(', '.join(names))}; add --{what} NAME"
        )
    return found


def _features(table: NodeTable, features: Sequence[str], notes: list[str]) -> Array:
    columns = []
    blank = 0
    for name in features:
        values = [node.get(name) for node in table.attributes]
        width = max((len(value) for value in values if isinstance(value, (list, tuple))), default=1)
        column = np.zeros((len(values), width), dtype=np.float64)
        for i, value in enumerate(values):
            numbers = value if isinstance(value, (list, tuple)) else [value] * (width if _missing(value) else 1)
            if len(numbers) != width:
                raise FglauditError(
                    f"a feature has as many numbers at every node; {name!r} has {len(numbers)} at {table.where[i]} and"
                    f" {width} elsewhere; correct the file"
                )
            for j, number in enumerate(numbers):
                if _missing(number):
                    blank += 1
                else:
                    column[i, j] = _number(number, name, table.where[i])
        columns.append(column)
    if blank:
        notes.append(f"{counted(blank, 'missing feature value')} set to 0")
    return np.concatenate(columns, axis=1).astype(np.float32)


def _missing(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() in _BLANK
    return value is None or (isinstance(value, float) and math.isnan(value))


def _number(value: Any, name: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise FglauditError(
            f"features are numbers; {name!r} is {shown(value)} at {where}; encode it as numbers, or leave it out with"
            f" --drop {name}"
        ) from error
    if not math.isfinite(number):
        raise FglauditError(f"features are finite; {name!r} is {shown(value)} at {where}; correct the file")
    if abs(number) > limits.FEATURE:
        raise FglauditError(
            f"features lie between -{limits.FEATURE:g} and {limits.FEATURE:g}, so that their squares can be added;"
            f" {name!r} is {shown(value)} at {where}; rescale the column, or leave it out with --drop {name}"
        )
    return number


def _labels(values: Sequence[Any], label: str) -> tuple[Array, list[str]]:
    """Return class numbers: whole numbers 0, 1, ... as they are, anything else numbered in order; -1 is no class, but
    for where it and 1 are the only ones, as many write two classes."""
    given = ["" if _missing(value) else str(value).strip() for value in values]
    numbers = {text: int(text) for text in given if text.lstrip("-").isdigit() and len(text) < 10}
    kinds = sorted(set(given) - {""}, key=lambda text: (numbers.get(text, 0), text))
    if not kinds:
        raise FglauditError(f"at least one node must have a label; {label!r} is empty everywhere; fill it in")
    if set(kinds) <= set(numbers) and {numbers[kind] for kind in kinds} != {-1, 1}:
        given = ["" if numbers.get(text) == -1 else text for text in given]
        kinds = [kind for kind in kinds if numbers[kind] != -1]
    missing = given.count("")
    notes = [f"{counted(missing, 'node')} without a label: -1, unlabelled"] if missing else []
    kept = set(kinds) <= set(numbers) and all(0 <= numbers[kind] < len(values) for kind in kinds)
    code = numbers if kept else {kind: i for i, kind in enumerate(kinds)}
    if not kept:
        listed = ", ".join(f"{kind} = {i}" for i, kind in enumerate(kinds[:6])) + (", ..." if len(kinds) > 6 else "")
        notes.append(f"{counted(len(kinds), 'class', 'classes')} numbered: {shown(listed)[1:-1]}")
    return np.array([code[text] if text else -1 for text in given], dtype=np.int64), notes


def _clients(table: NodeTable, client: str, notes: list[str]) -> Array:
    """Return the number of every node's client: names are numbered in their order, whole numbers in theirs."""
    values = [node.get(client) for node in table.attributes]
    if blank := [where for where, value in zip(table.where, values, strict=True) if _missing(value)]:
        raise FglauditError(
            f"every node is at some client; {client!r} is empty at {blank[0]} and at {len(blank) - 1} more; fill it in,"
            " or leave the column out"
        )
    given = [str(value).strip() for value in values]
    whole = all(text.lstrip("-").isdigit() and len(text) < 19 for text in given)
    kinds = sorted(set(given), key=(lambda text: (int(text), text)) if whole else None)
    number = {kind: i for i, kind in enumerate(kinds)}
    clients = np.array([number[text] for text in given], dtype=np.int64)
    sizes = np.bincount(clients)
    listed = ", ".join(f"{kind} = {i} ({counted(sizes[i], 'node')})" for i, kind in enumerate(kinds[:8]))
    notes.append(f"{counted(len(kinds), 'client')}: {shown(listed + (', ...' if len(kinds) > 8 else ''))[1:-1]}")
    return clients


def _edges(table: NodeTable) -> Array:
    number: dict[str, int] = {}
    for i, name in enumerate(table.names):
        if name in number:
            raise FglauditError(
                f"a node is listed once; {shown(name)} stands at {table.where[number[name]]} and at {table.where[i]};"
                " remove one"
            )
        number[name] = i
    pairs = np.zeros((2, len(table.edges)), dtype=np.int64)
    for i, (*ends, where) in enumerate(table.edges):
        for j, end in enumerate(ends):
            if end not in number:
                raise FglauditError(
                    f"an edge joins nodes that are listed; {where} names {shown(end)}, which no node is called; add the"
                    " node, or remove the edge"
                )
            pairs[j, i] = number[end]
    return pairs


def _masks(table: NodeTable, split: str) -> dict[str, Array]:
    masks = {name: np.zeros(len(table.names), dtype=bool) for name in MASKS}
    for i, node in enumerate(table.attributes):
        value = node.get(split)
        if _missing(value):
            continue
        word = str(value).strip().lower()
        if word not in SPLITS:
            raise FglauditError(f"{split!r} at {table.where[i]}: {unknown('split', word, SPLITS)}")
        masks[SPLITS[word]][i] = True
    return dict(masks)


def edge_notes(edge_index: Array, nodes: int) -> list[str]:
    """Say what becomes of edges [2, E]: a graph is undirected, with every edge once and without loops."""
    row, col = edge_index.astype(np.int64)
    loops = row == col
    codes = np.unique((row * nodes + col)[~loops])
    back = np.isin((codes % nodes) * nodes + codes // nodes, codes)
    notes: list[str] = []
    _say(notes, int(loops.sum()), "self-loop", "removed (protocols add their own)")
    _say(notes, int((~loops).sum()) - len(codes), "duplicate edge", "removed")
    single = int((~back).sum())
    if single and back.any():
        notes.append(f"directed: {counted(single, 'edge is', 'edges are')} listed in one direction only and")
        notes[-1] += f" {int(back.sum())} in both; all of them are used undirected"
    elif single:
        notes.append(f"{counted(single, 'edge is', 'edges are')} listed in one direction; all are used undirected")
    isolated = nodes - len(np.unique(edge_index[:, ~loops]))
    _say(notes, isolated, "node", "without an edge")
    return notes


def _say(notes: list[str], count: int, noun: str, what: str) -> None:
    if count:
        notes.append(f"{counted(count, noun)} {what}")


def read_names(names: Iterable[Any]) -> list[str]:
    """Return names of nodes as text without blanks around it."""
    return [str(name).strip() for name in names]
