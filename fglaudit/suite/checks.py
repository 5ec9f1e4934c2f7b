"""Checks of a suite that need no data: do its observers exist, do its attacks and seeds differ, and can its protocols
use its partitions."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from fglaudit.errors import FglauditError, shown
from fglaudit.files import limits
from fglaudit.graph import FeatureKind, FederatedGraph
from fglaudit.interfaces import Attack, FederatedProtocol
from fglaudit.observers import ObserverSpec
from fglaudit.parties.base import Behaviour
from fglaudit.partition import PartitionSpec
from fglaudit.registry import is_stand_in


def check_observers(observers: Sequence[ObserverSpec], partitions: Sequence[PartitionSpec]) -> None:
    """Raise :class:`FglauditError` for a party that cannot exist or a combination that means nothing."""
    first: dict[ObserverSpec, int] = {}
    for i, observer in enumerate(observers):
        where = f"observers[{i}]"
        if first.setdefault(observer, i) != i:
            raise FglauditError(f"entries must differ; {where} repeats observers[{first[observer]}]; remove one")
        _check_parties(observer.parties, where)
        for partition in partitions:
            count = known_clients(partition)
            for party in observer.parties:
                if count is not None and _client_number(party) >= count:
                    raise FglauditError(
                        f"{where}: an observing client must exist in every partition; {shown(party)} does not, the"
                        f" clients of {partition.scheme} are client:0 ... client:{count - 1}"
                    )


def check_seeds(seeds: Sequence[int]) -> None:
    """Raise :class:`FglauditError` for a seed that no generator takes, or one that is listed twice: its findings would
    count as those of two trainings."""
    if outside := [seed for seed in seeds if not 0 <= seed <= limits.INTEGER]:
        raise FglauditError(f"seeds: a seed must be 0 or more and below 2^63; got {shown(outside[0])}; change it")
    if len(set(seeds)) < len(seeds):
        raise FglauditError(f"seeds: entries must differ; got {shown(list(seeds))}; remove the repeated one")


def check_servers(
    servers: Sequence[Behaviour | None], partitions: Sequence[PartitionSpec], protocols: Sequence[FederatedProtocol]
) -> None:
    """Raise :class:`FglauditError` for a party that breaks the rules and cannot: a client that a partition lacks, or
    more rounds than any protocol trains. Its cells would all be not applicable, and the run none the wiser."""
    longest = 0 if any(map(is_stand_in, protocols)) else max(protocol.num_rounds for protocol in protocols)
    for i, behaviour in enumerate(servers):
        if behaviour is None:
            continue
        where = f"server[{i}] {behaviour.name}"
        for partition in partitions:
            count = known_clients(partition)
            if count is not None and behaviour.least_clients > count:
                raise FglauditError(
                    f"{where}: needs at least {behaviour.least_clients} clients in every partition; {partition.scheme}"
                    f" has {count} (client:0 ... client:{count - 1}); name another client, or raise clients"
                )
        if longest and behaviour.least_rounds > longest:
            raise FglauditError(
                f"{where}: needs a protocol of at least {behaviour.least_rounds} rounds; the longest of this suite has"
                f" {longest}; raise its rounds, or lower those of {behaviour.name}"
            )


def check_attacks(attacks: Sequence[Attack]) -> None:
    """Raise :class:`FglauditError` for an attack that is listed twice with different fields: rows of findings go by its
    name, and one would be taken for the other, or for a second seed of it."""
    first: dict[str, int] = {}
    for i, attack in enumerate(attacks):
        if (earlier := first.setdefault(type(attack).name, i)) != i:
            raise FglauditError(
                f"attacks[{i}]: an attack is listed once, since findings go by its name; {shown(type(attack).name)} is"
                f" attacks[{earlier}] already; run it with other fields in a suite of its own"
            )


def _check_parties(parties: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for party in parties:
        if party not in ("server", "wire", "client:each") and _client_number(party) < 0:
            raise FglauditError(
                f"{where}: a party is server, client:NUMBER, client:each or wire; got {shown(party)}; correct it"
            )
        if party in seen:
            raise FglauditError(f"{where}: parties must differ; {shown(party)} is repeated; remove one")
        seen.add(party)
    if "wire" in parties and "server" in parties:
        raise FglauditError(
            f"{where}: the wire sees all that the server does; got {shown(list(parties))}; leave the server out"
        )
    if "client:each" in parties and any(p.startswith("client:") and p != "client:each" for p in parties):
        raise FglauditError(
            f"{where}: client:each runs every client in turn, alone or with the server; got {shown(list(parties))}; for"
            " colluding clients name each of them, e.g. [client:0, client:1]"
        )


def _client_number(party: str) -> int:
    """Number of ``client:7``; -1 for anything else."""
    found = re.fullmatch(r"client:(0|[1-9][0-9]{0,11})", party)
    return int(found[1]) if found else -1


def known_clients(partition: PartitionSpec) -> int | None:
    """Number of clients of a partition, or None where it depends on the data set (one node per client)."""
    return None if partition.scheme == "per-node" else partition.clients


def check_partition_fits(protocols: Sequence[FederatedProtocol], partitions: Sequence[PartitionSpec]) -> None:
    """Raise :class:`FglauditError` where a protocol needs disjoint clients and a partition overlaps.

    The protocols are asked with a path of four nodes: one that accepts it split in two but not with a shared node needs
    disjoint clients.
    """
    if not any(p.scheme == "overlapping" for p in partitions):
        return
    for i, protocol in enumerate(protocols):
        if _accepts(protocol, _path([0, 1], [2, 3])) and not _accepts(protocol, _path([0, 1, 2], [2, 3])):
            raise FglauditError(
                f"protocols[{i}]: {protocol.name} needs disjoint clients; partition scheme 'overlapping' gives nodes to"
                " several; use scheme: dirichlet, metis, louvain or per-node"
            )


def _accepts(protocol: FederatedProtocol, graph: FederatedGraph) -> bool:
    try:
        protocol.check(graph)
    except FglauditError:
        return False
    return True


def _path(*clients: list[int]) -> FederatedGraph:
    masks = tuple(torch.ones(len(nodes), dtype=torch.bool) for nodes in clients)
    return FederatedGraph(
        x=torch.ones(4, 2),
        y=torch.tensor([0, 1, 0, 1]),
        edge_index=torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]),
        clients=tuple(torch.tensor(nodes) for nodes in clients),
        train=masks,
        val=masks,
        test=masks,
        name="path",
        num_classes=2,
        features=FeatureKind.BINARY,
    )
