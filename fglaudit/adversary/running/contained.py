"""An attack runs contained: it ends no process, and what others compute with stays as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from fglaudit import registry
from fglaudit.errors import FglauditError
from fglaudit.interfaces import Attack
from fglaudit.plugins.exit_guard import no_exit


@contextlib.contextmanager
def contained(attack: Attack) -> Iterator[None]:
    """Run code of ``attack`` in this block. After one that is no part of fglaudit, torch's default dtype, its gradient
    mode and its global generator are put back.

    Raises:
        FglauditError: it changed the dtype or the mode, or raised ``SystemExit``.
    """
    with no_exit():
        if registry.shipped("attack", attack):
            yield
            return
        settings, rng = _settings(), torch.get_rng_state()
        try:
            yield
            if _settings() != settings:
                raise FglauditError(
                    "an attack must not change what others compute with; it changed torch's default dtype or gradient"
                    " mode; set them back, or use torch.no_grad() in a `with` block"
                )
        finally:
            torch.set_default_dtype(settings[0])
            torch.set_grad_enabled(settings[1])
            torch.set_rng_state(rng)


def _settings() -> tuple[torch.dtype, bool]:
    return torch.get_default_dtype(), torch.is_grad_enabled()
