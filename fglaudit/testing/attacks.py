"""What an attack promises."""

from __future__ import annotations

import torch

from fglaudit.adversary.default_planting import planted_for
from fglaudit.adversary.running.contained import contained
from fglaudit.adversary.running.guarded_view import changed, own_view, same
from fglaudit.conformance.comparing import check_plugin
from fglaudit.conformance.runs import CPU
from fglaudit.interfaces import Attack, Inference, Reconstruction
from fglaudit.rng import derive
from fglaudit.view import View


def check_attack(attack: Attack, view: View) -> None:
    """Check an attack on ``view``: deterministic, does not change the view, well-formed result, succeeds on its planted
    leak.

    Raises:
        AssertionError: naming the rule that does not hold.
    """
    check_plugin(attack)
    reason = attack.unsupported(view)
    if reason is not None:
        assert reason.strip(), "a refusal needs a reason"
        return
    given = own_view(view)
    with contained(attack):
        first = attack.run(given, rng=derive(0, "attack"), device=CPU)
    part = changed(view, given)
    assert not part, f"an attack must not change its view; it changed `{part}`"
    with torch.random.fork_rng(devices=[]):
        torch.rand(1)  # what is drawn from the global generator is another number
        again = attack.run(own_view(view), rng=derive(0, "attack"), device=CPU)
    if type(attack).quantity != "features":
        assert isinstance(first, Inference) and isinstance(again, Inference), (
            "an attack returns what its `quantity` says"
        )
        assert first.quantity == type(attack).quantity, "an inference is of the attack's `quantity`"
        assert same(first, again), "same seed, same result (rule 8)"
        assert len(first.subjects) == len(first.estimate), "one estimate per subject"
        assert bool(torch.isfinite(first.estimate).all()), "estimates are finite"
        return
    assert isinstance(first, Reconstruction), "an attack returns what its `quantity` says"
    assert same(first, again), "same seed, same result (rule 8)"
    rows = len(first.rows)
    assert first.rows.shape == (rows, view.public.num_features), "one column per feature"
    assert first.nodes.shape == first.confidence.shape == (rows,), "one node and one confidence per row"
    assert bool(torch.isfinite(first.rows).all()), "rows are finite"
    assert bool(((first.nodes >= -1) & (first.nodes < view.public.num_nodes)).all()), "nodes are global ids or -1"
    planted = planted_for(attack, view, derive(0, "plant"))
    assert planted.view.public.num_features == view.public.num_features, "a planted leak has the cell's shapes (rule 6)"
