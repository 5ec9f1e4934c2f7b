"""Shared settings of all tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Commands and scripts that tests start use all cores, side by side with other tests: threads that wait for a core spin,
# and take several times the time of the work itself. OpenMP reads this when torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import pytest
import torch

# Tests share the modules in the folders of helpers/; worker processes inherit the path and find them too.
sys.path[:0] = [str(folder) for folder in sorted((Path(__file__).parent / "helpers").iterdir()) if folder.is_dir()]

# Autograd counts the devices of a process at its first backward pass: the pretend device must be known before.
import pretend_device  # noqa: E402, F401

# Tests are many small operations: threads would wait for each other, above all where several tests run side by side.
torch.set_num_threads(1)

# What takes longest beside what it adds to the quick tests; `make test` leaves these out, `make test-all` runs them.
SLOW = (
    "attacks/codes/test_codes_cora.py",
    "attacks/models/test_training_membership.py::test_an_overfitted",
    "attacks/models/test_training_membership.py::test_differentially",
    "attacks/latents/test_latents_cora.py",
    "attacks/sums/test_sums_cora.py",
    "bench/test_defense_matrix.py",
    "bench/test_intervals_bench.py",
    "bench/test_links_bench.py::test_it_goes_on",
    "conformance/test_attacks.py::test_no_attack_fails_at_any_observer",
    "conformance/test_defenses.py::test_every_defense_reaches_a_hook_or_says_why_not",
    "datasets/test_raw_files.py",
    "datasets/test_hostile_npz.py::test_paths_that_are_no_files",
    "defenses/training/test_dp_fedavg.py::test_canaries",
    "defenses/training/test_dp_fedavg.py::test_drawn_clients",
    "defenses/training/test_dp_sgd.py::test_canaries",
    "defenses/test_defense_facts.py",
    "empirical/test_curve_test.py::test_an_honest_mechanism_is_refuted_as_seldom_as_stated",
    "empirical/test_edge_records.py::test_a_bound",
    "empirical/test_edge_records.py::test_an_honest",
    "empirical/test_edge_records.py::test_a_reporting",
    "empirical/test_empirical.py::test_p_values",
    "empirical/test_measured_epsilon.py",
    "execution/test_changed_inputs.py",
    "execution/test_dry_run.py::test_what_is_opened",
    "execution/test_forecast.py::test_a_probe_that_takes_too_long",
    "execution/test_shards.py::test_two_processes",
    "execution/test_shards.py::test_workers",
    "execution/test_store.py::test_two_runs_give_equal_files",
    "execution/test_store.py::test_a_failing_cell_costs_no_other",
    "execution/test_memory.py::test_running_out_of_memory_ends_no_run",
    "execution/test_memory.py::test_what_is_wrong",
    "execution/test_tracebacks.py::test_quiet",
    "execution/test_workers.py",
    "gate/test_gate_docs.py::test_the_documented_lines",
    "plugin_checks/test_plugin_check.py::test_noise_that_is",
    "plugin_checks/test_scaffold.py::test_what_is_written",
    "privacy/test_accounting.py::test_composing_n_times",
    "privacy/test_accounting.py::test_a_sampled_release",
    "privacy/test_subsampled_accounting.py",
    "privacy/test_tradeoff.py::test_points_bound_what_no_distribution_is_known_for",
    "privacy/test_tradeoff.py::test_samples_hide_more",
    "redteam/test_sample.py::test_broken_ones_are_refuted",
    "redteam/test_sample.py::test_sly_ones_are_not_verified",
    "suite/test_plugin_trust.py::test_the_command",
    "commands/test_cli_runs.py",
    "repository/test_packaging.py",
    "wire/test_observed.py::test_an_honest_session_is_never_unstated",
    "wire/test_observed.py::test_noise_on_one_message_of_few_values",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests whose names begin as one of ``SLOW``."""
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(SLOW):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def fewer_draws(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at a tenth of the many draws of one message: most tests train many defenses and ask something else."""
    if request.node.get_closest_marker("all_draws") is None:
        monkeypatch.setattr("fglaudit.wire.observing.repeated_draws.SEEDS", 400)
