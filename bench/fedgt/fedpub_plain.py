"""``python -m bench.fedgt.fedpub_plain METHOD``: FedAvg or FED-PUB as in their authors' code, client by client.

An oracle for the rows ``as published code`` of FedGT's tables: torch-geometric's layers, torch's Adam and a loop over
clients, on the same partition and split as ``fglaudit reproduce``; written from the facts of ``JinheonBaek/FED-PUB``.
Printed is the clients' mean test accuracy after local training, in the round with the best validation accuracy.
"""

from __future__ import annotations

import argparse
import statistics
import warnings

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout, normalize, relu
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from fglaudit.errors import FglauditError
from fglaudit.graph import ClientGraph
from fglaudit.protocols.fedpub.fedpub import COMMUNITIES, COMMUNITY_NODES, EDGE_PROBABILITY
from fglaudit.reproduce.papers import fedgt, fedgt_methods
from fglaudit.reproduce.published import BY_THEIR_CODE, Published
from fglaudit.rng import derive

HIDDEN, ROUNDS, RATE, DECAY = 128, 100, 0.01, 1e-6
PRUNED = 1e-3
"""Entries of a mask below which it is 0 in tests."""


class Network(nn.Module):
    """Two graph convolutions and a linear layer, with masks on the matrices or without."""

    def __init__(self, features: int, classes: int, *, masked: bool) -> None:
        super().__init__()
        shapes = {"first": (features, HIDDEN), "second": (HIDDEN, HIDDEN), "classes": (HIDDEN, classes)}
        self.matrices = nn.ParameterDict({name: nn.init.xavier_uniform_(torch.empty(s)) for name, s in shapes.items()})
        self.biases = nn.ParameterDict({name: torch.zeros(shape[1]) for name, shape in shapes.items()})
        self.masks = nn.ParameterDict({name: torch.ones(shape) for name, shape in shapes.items() if masked})

    def forward(self, x: Tensor, adjacency: Tensor, *, probe: bool = False) -> Tensor:
        """Return class scores, or the second layer's outputs before its relu."""
        rows: Tensor = relu(adjacency @ (x @ self._matrix("first")) + self.biases["first"])
        rows = dropout(rows, training=self.training)
        rows = adjacency @ (rows @ self._matrix("second")) + self.biases["second"]
        if not probe:
            rows = dropout(relu(rows), training=self.training) @ self._matrix("classes") + self.biases["classes"]
        return rows

    def shared(self) -> list[Tensor]:
        """Return what a client sends."""
        return [*self.matrices.values(), *self.biases.values()]

    def _matrix(self, name: str) -> Tensor:
        matrix: Tensor = self.matrices[name]
        if name in self.masks:
            mask = self.masks[name]
            matrix = matrix * (mask if self.training else mask.masked_fill(mask.abs() < PRUNED, 0))
        return matrix


def run(clients: list[ClientGraph], classes: int, *, tau: float | None, seed: int) -> float:
    """Train and return the accuracy in percent; ``tau`` None is FedAvg with equal weights."""
    torch.manual_seed(seed)  # torch's dropout draws from the global state
    count, features = len(clients), clients[0].x.shape[1]
    first = Network(features, classes, masked=tau is not None)
    networks = [Network(features, classes, masked=tau is not None) for _ in clients]
    optimizers = [torch.optim.Adam(network.parameters(), lr=RATE, weight_decay=DECAY) for network in networks]
    graphs = [(client.x.float().to_sparse_csr(), _adjacency(client.edge_index, len(client.x))) for client in clients]
    probe = _probe(features)
    received = [[weight.detach().clone() for weight in first.shared()] for _ in clients]
    validation, test = [], []
    for _ in range(ROUNDS):
        right, embedded = [], []
        for client, network, optimizer, graph, weights in zip(
            clients, networks, optimizers, graphs, received, strict=True
        ):
            with torch.no_grad():
                for mine, theirs in zip(network.shared(), weights, strict=True):
                    mine.copy_(theirs)
            network.train()
            optimizer.zero_grad()
            loss = cross_entropy(network(*graph)[client.train], client.y[client.train])
            torch.autograd.backward(loss)
            optimizer.step()
            network.eval()
            with torch.no_grad():
                right.append(network(*graph).argmax(1) == client.y)
                if tau is not None:
                    embedded.append(network(*probe, probe=True).mean(0))
        validation.append(_mean_share(right, [client.val for client in clients]))
        test.append(_mean_share(right, [client.test for client in clients]))
        share = torch.full((count, count), 1 / count)
        if tau is not None:
            unit = normalize(torch.stack(embedded), dim=1)
            share = (tau * unit @ unit.T).softmax(1)
        stacked = [
            torch.stack([weight.detach() for weight in each])
            for each in zip(*(n.shared() for n in networks), strict=True)
        ]
        received = [[torch.tensordot(share[k], each, 1) for each in stacked] for k in range(count)]
    return 100 * test[max(range(ROUNDS), key=validation.__getitem__)]


def _adjacency(edges: Tensor, count: int) -> Tensor:
    pairs, weights = gcn_norm(edges, None, count, add_self_loops=True)
    return torch.sparse_coo_tensor(pairs.flip(0), weights, (count, count)).coalesce().to_sparse_csr()


def _probe(features: int) -> tuple[Tensor, Tensor]:
    """Return the random graph's rows and adjacency."""
    count = COMMUNITIES * COMMUNITY_NODES
    community = torch.arange(count) // COMMUNITY_NODES
    drawn = ((torch.rand(count, count) < EDGE_PROBABILITY) & (community[:, None] == community)).triu(1)
    return torch.randn(count, features), _adjacency((drawn | drawn.T).nonzero().T, count)


def _mean_share(right: list[Tensor], masks: list[Tensor]) -> float:
    """Return the clients' mean accuracy; 1 for a client without such nodes, as there."""
    return statistics.fmean(float(r[m].float().mean()) if m.any() else 1.0 for r, m in zip(right, masks, strict=True))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m bench.fedgt.fedpub_plain", description=__doc__)
    parser.add_argument("method", choices=("FedAvg", "FED-PUB"))
    parser.add_argument("--dataset", default="cora", choices=tuple(fedgt_methods.SETTINGS))
    parser.add_argument("--setting", default="overlapping", choices=("overlapping", "non-overlapping"))
    parser.add_argument("--clients", default="30")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--root", help="folder of the raw data sets")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse")
    method = options.method + BY_THEIR_CODE
    row = Published(
        "fedgt-table1", options.dataset, options.setting, options.clients, method, "accuracy", "percent", None, None
    )
    spec, partition = fedgt.split_of(row, options.root)
    try:
        graph = partition.apply(spec.load(), spec, derive(options.seed, "partition"))
    except FglauditError as error:
        parser.error(str(error))
    tau = getattr(fedgt.protocol(row), "tau", None)
    clients = [graph.client(k) for k in range(graph.num_clients)]
    print(f"{row.label}, seed {options.seed}: {run(clients, graph.num_classes, tau=tau, seed=options.seed):.2f}")


if __name__ == "__main__":
    main()
