"""Per-example gradients of one torch module by Opacus, the reference for ``fglaudit.federated.example_gradients``."""

from __future__ import annotations

import warnings

from torch import Tensor, nn
from torch.nn import functional

from fglaudit.errors import FglauditError


def opacus_gradients(module: nn.Module, inputs: tuple[Tensor, ...], labels: Tensor) -> dict[str, Tensor]:
    """Return the gradient of every example's cross-entropy by parameter name [B, ...].

    Args:
        module: maps ``inputs``, each with a leading axis of B examples, to class scores [B, C]; not changed.
        labels: [B].

    Raises:
        FglauditError: if Opacus is not installed, or cannot give a layer's gradients example by example; names the
            layer.
    """
    try:
        from opacus.grad_sample import GradSampleModule
    except ImportError as error:
        raise FglauditError("gradients by Opacus need it installed; it is not; pip install 'fglaudit[dev]'") from error
    for name, layer in module.named_modules():
        if GradSampleModule.validate(layer) and not any(True for _ in layer.children()):
            raise FglauditError(
                f"Opacus must be able to tell the examples of a layer apart; it cannot for {name or 'the module'}"
                f" ({type(layer).__name__}), which keeps statistics over them; use a layer without, such as GroupNorm"
                " or LayerNorm"
            )
    wrapped = GradSampleModule(module, loss_reduction="sum")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            functional.cross_entropy(wrapped(*inputs), labels, reduction="sum").backward()  # type: ignore[no-untyped-call]
        return {name: weight.grad_sample.detach() for name, weight in module.named_parameters()}  # type: ignore[attr-defined]
    finally:
        wrapped.remove_hooks()
        for weight in module.parameters():
            weight.grad = weight.grad_sample = None  # type: ignore[attr-defined]
