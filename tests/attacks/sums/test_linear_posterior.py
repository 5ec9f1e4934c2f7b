"""The solved equations against dense algebra, and that all attacks of an observer share them."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from scipy.sparse.linalg import SuperLU

from fglaudit.attacks.sums.equations import gram_blocks
from fglaudit.attacks.sums.equations import linear_posterior as module
from fglaudit.attacks.sums.equations.neighbor_equations import NeighborEquations
from fglaudit.attacks.sums.integer_propagation import IntegerPropagation
from fglaudit.attacks.sums.maximum_a_posteriori import MaximumAPosteriori
from fglaudit.attacks.sums.row_space import RowSpace
from fglaudit.graph import FeatureKind
from fglaudit.interfaces import Attack, Reconstruction
from fglaudit.protocols.fedgcn.fedgcn import FedGCN
from fglaudit.rng import derive
from fglaudit.testing import CPU, example_graph, record
from fglaudit.view import Observer, View


@pytest.mark.parametrize("second", [IntegerPropagation(), MaximumAPosteriori()], ids=lambda a: a.name)
def test_attacks_share_the_decomposition_and_leave_it_as_it_is(second: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = example_graph()
    if isinstance(second, MaximumAPosteriori):  # it decomposes the matrix of real-valued rows alone
        x = torch.randn(graph.x.shape, generator=derive(0, "rows"))
        graph = dataclasses.replace(graph, x=x, features=FeatureKind.REAL)
    run, calls, solve = record(FedGCN(hops=1, rounds=1), graph), list[int](), module.linear_posterior

    def counted(*args: object) -> module.LinearPosterior:
        calls.append(1)
        return solve(*args)  # type: ignore[arg-type]

    def rows(attack: Attack, view: View | None = None) -> torch.Tensor:
        found = attack.run(view or run.view(Observer(parties=(0,))), rng=derive(0, "attack"), device=CPU)
        assert isinstance(found, Reconstruction)
        return found.rows

    alone = rows(second)
    monkeypatch.setattr(module, "linear_posterior", counted)
    view = run.view(Observer(parties=(0,)))
    rows(RowSpace(), view)
    assert torch.equal(rows(second, view), alone)
    assert len(calls) == 1


def equations(
    rows: int, unknowns: int, terms: int, seed: int, std: float = 0.0
) -> tuple[NeighborEquations, torch.Tensor]:
    """Return equations of which a fifth are given twice, a few are incomplete, and the rows behind them."""
    rng = derive(seed, "equations")
    code = torch.unique(torch.randint(rows * unknowns, (terms,), generator=rng))
    row, column = torch.unique(code // unknowns, return_inverse=True)[1], code % unknowns
    again = row < rows // 5
    row, column = torch.cat([row, row[again] + rows]), torch.cat([column, column[again]])
    weight = (torch.randint(1, 9, (unknowns,), generator=rng) + 1.0).double().rsqrt()[column]
    x = (torch.rand(unknowns, 3, generator=rng) < 0.2).double()
    count = 2 * rows
    values = torch.zeros(count, 3, dtype=torch.double).index_add_(0, row, weight[:, None] * x[column])
    values += std * torch.randn(count, 3, generator=rng).double()
    hidden = (torch.rand(count, generator=rng) < 0.1).long()
    noise = torch.full((count,), std, dtype=torch.double)
    ids, nobody = torch.arange(count), torch.full((count,), -1)
    known = NeighborEquations(
        torch.arange(unknowns), row, column, weight, values, values.abs() * 1e-7, noise, hidden, ids, nobody
    )
    return known, x


@pytest.mark.parametrize(
    ("rows", "unknowns", "terms"), [(20, 40, 40), (40, 60, 110), (60, 30, 150), (300, 20, 900), (300, 100, 900)]
)
def test_rows_are_determined_where_dense_algebra_says_so(rows: int, unknowns: int, terms: int) -> None:
    """Sparse equations in many components, in a large one, and more than unknowns, or far more; many are dependent."""
    known, x = equations(rows, unknowns, terms, seed=rows)
    mean, variance = torch.full_like(x, 0.2), torch.full_like(x, 0.16)
    solved = module.linear_posterior(known, mean, variance)
    matrix = torch.zeros(known.num_rows, unknowns, dtype=torch.double)
    matrix[known.rows, known.columns] = known.coefficients
    matrix[known.hidden > 0] = 0
    inverse = torch.linalg.pinv(matrix)
    determined = (inverse @ matrix).diagonal() > 1 - 1e-9
    assert int(determined.sum()) > 3 and torch.linalg.matrix_rank(matrix) < (matrix != 0).any(1).sum()
    assert torch.equal(solved.determined, determined)
    assert torch.allclose(solved.mean, mean + inverse @ (known.values - matrix @ mean), atol=1e-9)
    assert torch.allclose(solved.mean[determined], x[determined], atol=1e-9)
    bound = (inverse.abs() @ known.tolerance).amax(1)
    # Equations that are solved one after the other bound errors less tightly than all of them at once.
    looser = solved.error[determined] / bound[determined].clamp(min=1e-300)
    assert bool((looser <= 16).all()) and float(looser.mean()) < 2
    assert bool(solved.error[~determined].isinf().all())
    for draw in range(20):  # whatever the errors are, they carry no row further than is said
        sign = torch.randint(2, known.values.shape, generator=derive(draw, "signs")) * 2 - 1
        off = dataclasses.replace(known, values=known.values + sign * known.tolerance)
        carried = (module.linear_posterior(off, mean, variance).mean - solved.mean).abs().amax(1)
        assert bool((carried <= solved.error + 1e-12)[determined].all())


def test_noise_is_weighed_against_the_prior() -> None:
    """With noise in every equation the estimate is the posterior mean of a Gaussian prior, component by component."""
    known, x = equations(30, 40, 90, seed=1, std=0.3)
    mean, variance = torch.full_like(x, 0.2), torch.full_like(x, 0.16)
    matrix = torch.zeros(known.num_rows, 40, dtype=torch.double)
    matrix[known.rows, known.columns] = known.coefficients
    matrix[known.hidden > 0] = 0
    gram = matrix @ matrix.T + (0.3**2 / 0.16) * torch.eye(known.num_rows).double()
    wanted = mean + matrix.T @ torch.linalg.solve(gram, known.values - matrix @ mean)
    assert torch.allclose(module.linear_posterior(known, mean, variance).mean, wanted, atol=1e-9)


@pytest.mark.parametrize("attack", [RowSpace(), IntegerPropagation()], ids=lambda a: a.name)
def test_rounding_decides_on_no_entry(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """In counts two neighbours share many an entry evenly: one half each, give or take what the solver rounds."""
    run = record(FedGCN(hops=1, rounds=1, aggregate="counts"), example_graph(nodes=48, features=40, clients=4))
    view = run.view(Observer(parties=(0,)))
    solved = module.posterior_of_sums(view, CPU, 1.0)
    assert int(((solved.mean - 0.5).abs() < 1e-12).sum()) > 10
    found = []
    for error in (1e-13, -1e-13):
        moved = dataclasses.replace(solved, mean=solved.mean + error)
        monkeypatch.setattr(f"{type(attack).__module__}.posterior_of_sums", lambda *_, moved=moved: moved)
        result = attack.run(view, rng=derive(0, "attack"), device=CPU)
        assert isinstance(result, Reconstruction)
        found.append(result.rows)
    assert torch.equal(*found)


@pytest.mark.parametrize(("unknowns", "terms", "sparse"), [(800, 3200, True), (1000, 6000, False)])
def test_a_large_component_is_solved_as_a_small_one(
    unknowns: int, terms: int, sparse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a sparse matrix where its factors fill up little, else as a dense one: which rows are determined, bounds and
    estimates are the same."""
    known, x = equations(900, unknowns, terms, seed=3)
    mean, variance = torch.full_like(x, 0.2), torch.full_like(x, 0.16)
    used, factor = list[bool](), gram_blocks._sparse_factor

    def counted(*args: torch.Tensor) -> SuperLU:
        found = factor(*args)
        used.append(found.nnz < gram_blocks._FULL * len(args[3]) ** 2)
        return found

    monkeypatch.setattr(gram_blocks, "_sparse_factor", counted)
    solved = module.linear_posterior(known, mean, variance)
    assert used == [sparse]
    monkeypatch.setattr(gram_blocks, "_DENSE", 10_000)
    wanted = module.linear_posterior(known, mean, variance)
    assert len(used) == 1
    assert 0 < int(solved.determined.sum()) < known.num_unknowns
    assert torch.equal(solved.determined, wanted.determined)
    assert torch.allclose(solved.mean, wanted.mean, atol=1e-9)
    assert torch.allclose(solved.error, wanted.error, rtol=1e-4)


def test_many_unit_vectors_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    known, x = equations(300, 100, 900, seed=1)
    mean, variance = torch.full_like(x, 0.2), torch.full_like(x, 0.16)
    monkeypatch.setattr(module, "_TALL", 10_000)
    at_once = module.linear_posterior(known, mean, variance)
    monkeypatch.setattr(gram_blocks, "_AT_ONCE", 2000)
    in_parts = module.linear_posterior(known, mean, variance)
    assert int(at_once.determined.sum()) > 10
    assert torch.equal(in_parts.determined, at_once.determined)
    assert torch.allclose(in_parts.error, at_once.error)
