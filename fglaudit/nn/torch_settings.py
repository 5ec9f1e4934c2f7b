"""Settings of torch that hold for a whole process, and that a notebook may have changed: figures must not depend on
them."""

from __future__ import annotations

import torch

from fglaudit.errors import FglauditError


def check_torch_settings() -> None:
    """Refuse settings under which training and attacks are others than those that reports speak of.

    They are refused, not changed for a while: other threads of the process would see the change.

    Raises:
        FglauditError: another default dtype or device than float32 on the CPU, no gradients, or autocast.
    """
    if (dtype := torch.get_default_dtype()) != torch.float32:
        raise _refuse("default dtype must be float32", str(dtype), "call torch.set_default_dtype(torch.float32)")
    if (device := torch.get_default_device()).type != "cpu":
        fix = "call torch.set_default_device(None); the argument device says where to compute"
        raise _refuse("default device must be the CPU", str(device), fix)
    if not torch.is_grad_enabled():
        raise _refuse("gradients must be on", "no_grad or inference_mode", "call fglaudit outside of it")
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise _refuse("autocast must be off", "torch.autocast", "call fglaudit outside of it")


def _refuse(rule: str, got: str, fix: str) -> FglauditError:
    return FglauditError(f"torch's {rule}; got {got}; {fix}")
