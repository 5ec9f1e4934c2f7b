"""The graph transformer of FedGT's published code (``zaixizhang/FedGT``, ac35442), K clients at once.

A node is classified from a sequence of the node itself, of nodes drawn around it and of a few learned tokens. In every
layer all entries attend to each other, with learned weights of their proximities added to the scores; what comes out
attends to the client's global nodes in an attention of its own, and both reach the feed-forward part side by side:

    y = MHA(LN(x));  x' = x + y;  g = x' + MHA(y; keys and values: global nodes);  x'' = x' + FFN(LN([x', g])).

In the paper (equations (2)-(6)) neighbours and global nodes share one attention, and global nodes pass through the
layers; here they enter every layer as they are. ``Dropout`` acts on the inputs, on the shares of both attentions and on
all three summands. One draw drops the inputs of a node for all sequences of a step, not for each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fglaudit.errors import require_least
from fglaudit.nn.graph_transformer import (
    Dropout,
    GraphTransformer,
    Weights,
    attend_pairs,
    layer_norm,
    linear,
    sequence_blocks,
    take,
)

DEVIATION = 0.02
"""Of tokens at the start; that of matrices is this over the root of the number of layers."""


@dataclass(frozen=True)
class Surrounded:
    """Sequences of m nodes of every client, without the learned tokens.

    Attributes:
        nodes: [K, m, s]; the first of each is the node itself.
        near: returns the proximities of all pairs [K, m', s, s, powers] of some of the m sequences.
        missing: entries that stand for no node [K, m, s].
    """

    nodes: Tensor
    near: Callable[[slice], Tensor]
    missing: Tensor


@dataclass(frozen=True)
class TwoAttentionTransformer:
    """The architecture; ``tokens`` per model, ``powers`` of the propagation matrix among the proximities.

    Without ``global_attention`` the second attention and its weights are missing, ``g = x'``.
    """

    layers: int
    hidden: int
    heads: int
    feed_forward: int
    tokens: int
    powers: int
    global_attention: bool = True

    def __post_init__(self) -> None:
        require_least(self, tokens=0, powers=1)
        GraphTransformer(self.layers, self.hidden, self.heads, self.feed_forward)

    def layout(self, num_inputs: int, num_classes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the weights of one model; ``num_inputs`` are features and encoding together, in this order."""
        d = self.hidden
        shapes = GraphTransformer(self.layers, d, self.heads, self.feed_forward).layout(num_inputs, num_classes)
        for index in range(self.layers):
            name = f"layers.{index}"
            shapes |= {f"{name}.proximity.weight": (self.powers, self.heads), f"{name}.proximity.bias": (self.heads,)}
            if self.global_attention:
                shapes |= {f"{name}.global_query.weight": (d, d), f"{name}.global_query.bias": (d,)}
                shapes |= {f"{name}.global_key_value.weight": (d, 2 * d), f"{name}.global_key_value.bias": (2 * d,)}
                shapes |= {f"{name}.global_output.weight": (d, d), f"{name}.global_output.bias": (d,)}
            shapes |= {f"{name}.norm_feed_forward.scale": (2 * d,), f"{name}.norm_feed_forward.shift": (2 * d,)}
            shapes |= {f"{name}.expand.weight": (2 * d, self.feed_forward)}
        return shapes | {"tokens.rows": (self.tokens, d), "tokens.proximity": (self.tokens, self.powers)}

    def initial(self, layout: Mapping[str, tuple[int, ...]], rng: torch.Generator) -> Tensor:
        """Draw one model [D]: matrices and tokens normal, scales 1, biases and shifts 0."""
        parts = []
        for name, shape in layout.items():
            if len(shape) == 2:
                std = DEVIATION if name.startswith("tokens.") else DEVIATION / math.sqrt(self.layers)
                parts.append(std * torch.randn(math.prod(shape), generator=rng))
            else:
                parts.append(torch.full(shape, 1.0 if name.endswith("scale") else 0.0))
        return torch.cat(parts)

    def logits(
        self, weights: Weights, inputs: Tensor, sequences: Surrounded, global_nodes: Tensor, dropout: Dropout
    ) -> Tensor:
        """Return the class scores [K, m, classes] of the sequences' first nodes.

        Args:
            weights: [K, ...] by name.
            inputs: projected rows [K, n, d].
            global_nodes: [K, g, d].
        """
        rows = dropout(torch.cat([inputs, weights["tokens.rows"]], 1))
        table = self._first_table(weights, rows)
        count, length = sequences.nodes.shape[1], sequences.nodes.shape[2] + self.tokens
        parts = sequence_blocks(count, len(rows) * length * 2 * self.hidden, dropout, rows.device)
        found = [self._first_nodes(weights, table, sequences, part, global_nodes, dropout) for part in parts]
        return linear(weights, "classes", layer_norm(weights, "norm", torch.cat(found, 1)))

    def _first_table(self, weights: Weights, rows: Tensor) -> dict[str, Tensor]:
        """Return what the first layer reads of the distinct ``rows`` [K, n + t, d], computed once for all sequences."""
        normed = layer_norm(weights, "layers.0.norm_attention", rows)
        if self.layers == 1:
            return {"rows": rows, "normed": normed}
        projected = {name: linear(weights, f"layers.0.{name}", normed) for name in ("query", "key_value")}
        return {"rows": rows} | projected

    def _first_nodes(
        self,
        weights: Weights,
        table: Mapping[str, Tensor],
        sequences: Surrounded,
        part: slice,
        global_nodes: Tensor,
        dropout: Dropout,
    ) -> Tensor:
        """Return the last layer's outputs for the first nodes of some sequences [K, m', d]."""
        nodes = sequences.nodes[:, part]
        clients, count, _ = nodes.shape
        size = table["rows"].shape[1]
        tokens = torch.arange(size - self.tokens, size, device=nodes.device).expand(clients, count, -1)
        where = torch.cat([nodes, tokens], 2)
        missing = functional.pad(sequences.missing[:, part], (0, self.tokens))[:, :, None, None]
        near = sequences.near(part)
        here = {kind: take(each, where) for kind, each in table.items()}
        rows = table["rows"]
        for index in range(self.layers):
            name, last = f"layers.{index}", index == self.layers - 1
            bias = self._bias(weights, name, near, first_only=last).masked_fill(missing, -torch.inf)
            if index:
                normed = layer_norm(weights, f"{name}.norm_attention", rows)
                here = {"rows": rows, "normed": normed}
                if not last:
                    here |= {kind: linear(weights, f"{name}.{kind}", normed) for kind in ("query", "key_value")}
                here = {kind: each.view(clients, count, -1, each.shape[2]) for kind, each in here.items()}
            if last:
                attended = self._attend_first(weights, name, here["normed"], bias.squeeze(3), dropout)
                residual = here["rows"][:, :, 0]
            else:
                key, value = here["key_value"].chunk(2, 3)
                attended = attend_pairs(here["query"], key, value, bias, self.heads, dropout).flatten(1, 2)
                residual = here["rows"].flatten(1, 2)
            local = dropout(linear(weights, f"{name}.output", attended))
            beside = residual + local
            far = beside
            if self.global_attention:
                far = beside + dropout(self._global(weights, name, local, global_nodes, dropout))
            both = layer_norm(weights, f"{name}.norm_feed_forward", torch.cat([beside, far], 2))
            inner = functional.gelu(linear(weights, f"{name}.expand", both))
            rows = beside + dropout(linear(weights, f"{name}.contract", inner))
        return rows

    def _bias(self, weights: Weights, name: str, near: Tensor, *, first_only: bool) -> Tensor:
        """Return what is added to the scores [K, m, heads, w, s + t]; w is 1 or s + t. A pair with a token has the
        token's own proximity, that of the attended one where both are tokens."""
        weight = weights[f"{name}.proximity.weight"]
        nodes = torch.einsum("kmijv,kvh->kmhij", near[:, :, :1] if first_only else near, weight)
        of_tokens = (weights["tokens.proximity"] @ weight).transpose(1, 2)[:, None, :, None]  # [K, 1, heads, 1, t]
        shape = nodes.shape
        bias = torch.cat([nodes, of_tokens.expand(*shape[:4], -1)], 4)
        if not first_only:
            from_tokens = of_tokens.transpose(3, 4).expand(*shape[:3], -1, shape[4])
            among = of_tokens.expand(*shape[:3], self.tokens, -1)
            bias = torch.cat([bias, torch.cat([from_tokens, among], 4)], 3)
        return bias + weights[f"{name}.proximity.bias"][:, None, :, None, None]

    def _attend_first(self, weights: Weights, name: str, normed: Tensor, bias: Tensor, dropout: Dropout) -> Tensor:
        """Return the attention outputs of the first entries [K, m, d] of sequences [K, m, s, d].

        The maps to keys and values are applied to what they are multiplied with, not to every entry. The keys' bias is
        the same for all of them, so that a softmax does not see it; ``bias`` [K, m, heads, s] of the pairs it does.
        """
        key, value = (
            self._by_head(part) for part in weights[f"{name}.key_value.weight"].chunk(2, 2)
        )  # [K, d, heads, d_K]
        query = self._by_head(linear(weights, f"{name}.query", normed[:, :, 0]))
        asked = torch.einsum("kmhe,kdhe->kmhd", query * (self.hidden // self.heads) ** -0.5, key)
        share = dropout((asked @ normed.transpose(2, 3) + bias).softmax(3))
        shift = weights[f"{name}.key_value.bias"].chunk(2, 1)[1].view(-1, 1, *value.shape[2:])
        read = torch.einsum("kmhd,kdhe->kmhe", share @ normed, value) + share.sum(3, keepdim=True) * shift
        outputs: Tensor = read.flatten(2)
        return outputs

    def _global(self, weights: Weights, name: str, rows: Tensor, global_nodes: Tensor, dropout: Dropout) -> Tensor:
        """Return what ``rows`` [K, r, d] read from the global nodes [K, g, d], without bias among the scores.

        Global nodes are few: the maps of queries and outputs are applied to their keys and values, not to the rows.
        """
        key, value = (
            self._by_head(part) for part in linear(weights, f"{name}.global_key_value", global_nodes).chunk(2, 2)
        )  # [K, g, heads, d_K]
        asks, shift = (self._by_head(weights[f"{name}.global_query.{part}"]) for part in ("weight", "bias"))
        key = key * (self.hidden // self.heads) ** -0.5
        asked = torch.einsum("kdhe,kghe->kdhg", asks, key).flatten(2)
        score = torch.baddbmm(torch.einsum("khe,kghe->khg", shift, key).flatten(1).unsqueeze(1), rows, asked)
        share = dropout(score.view(*score.shape[:2], self.heads, -1).softmax(3)).flatten(2)
        out = weights[f"{name}.global_output.weight"].view(len(rows), self.heads, -1, rows.shape[2])
        read = torch.einsum("kghe,khed->khgd", value, out).flatten(1, 2)
        return torch.baddbmm(weights[f"{name}.global_output.bias"].unsqueeze(1), share, read)

    def _by_head(self, flat: Tensor) -> Tensor:
        """Return [..., d] as [..., heads, d_K]."""
        return flat.reshape(*flat.shape[:-1], self.heads, -1)
