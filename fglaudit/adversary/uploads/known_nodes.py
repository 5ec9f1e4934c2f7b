"""Class predictions of the clients' graph transformers for rows that the observer knows.

The observer lacks the clients' graphs, so each node attends only to itself and, where the network has it so, to the
global nodes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fglaudit.adversary.uploads.held import input_map
from fglaudit.nn.graph_transformer import Dropout, GraphTransformer, Neighborhood
from fglaudit.nn.two_attention_transformer import Surrounded, TwoAttentionTransformer
from fglaudit.nn.weights import unflatten
from fglaudit.structure import Transformer
from fglaudit.view import View


def unknown_architecture(view: View) -> str | None:
    """Return why the clients' models cannot be evaluated, or None."""
    return view.public.structure.missing(Transformer)


def predict(view: View, models: Tensor, global_nodes: Tensor, inputs: Tensor, dropout: Dropout) -> Tensor:
    """Return log class probabilities [K, n, C] of nodes under the clients' models.

    Args:
        models: [K, D].
        global_nodes: [K, g, d].
        inputs: input representations of the nodes [K, n, d].
    """
    stated = view.public.structure.of(Transformer)
    if stated.separate_global:
        return _published(view, stated, models, global_nodes, inputs, dropout)
    size = stated.layers, stated.hidden, stated.heads, stated.feed_forward
    shape = GraphTransformer(*size, global_attention=stated.global_attention)
    itself = torch.arange(inputs.shape[1], device=models.device).view(1, -1, 1).expand(len(models), -1, -1)
    where = Neighborhood(None, itself, None)
    scores = shape.logits(unflatten(models, view.public.layout), inputs, [where] * shape.layers, global_nodes, dropout)
    return scores.log_softmax(2)


def _published(
    view: View, stated: Transformer, models: Tensor, global_nodes: Tensor, inputs: Tensor, dropout: Dropout
) -> Tensor:
    """Compute :func:`predict` for the other network; a node without edges is near itself alone, in all powers."""
    size = stated.layers, stated.hidden, stated.heads, stated.feed_forward
    shape = TwoAttentionTransformer(*size, stated.tokens, stated.powers, stated.global_attention)
    nodes = torch.arange(inputs.shape[1], device=models.device).view(1, -1, 1).expand(len(models), -1, -1)
    near = inputs.new_ones(*nodes.shape, 1, stated.powers)
    alone = Surrounded(nodes, lambda part: near[:, part], torch.zeros_like(nodes, dtype=torch.bool))
    weights = unflatten(models, view.public.layout)
    return shape.logits(weights, inputs, alone, global_nodes, dropout).log_softmax(2)


def log_probabilities(view: View, models: Tensor, global_nodes: Tensor, rows: Tensor, dropout: Dropout) -> Tensor:
    """Return log class probabilities [K, n, C] of known feature rows under the clients' models.

    Args:
        models: [K, D].
        global_nodes: [K, g, d].
        rows: [n, F].
    """
    weight, bias = input_map(view, models)
    return predict(view, models, global_nodes, rows.to(weight) @ weight + bias, dropout)
