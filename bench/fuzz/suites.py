"""Mutated suite files: the embedded suites with damaged bytes, lines, tokens and trees, and hostile YAML of its own."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import yaml

from fglaudit.errors import FglauditError
from fglaudit.suite.embedded import embedded
from fglaudit.suite.yaml_text import read_yaml

HOSTILE: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 7, 64, 65, 1000, 10**6, 10**9, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, True, False, None),
    *(0.0, -0.0, 0.5, 1.0, 1e-308, 1e308, -1e308, float("inf"), float("nan"), 1e-5),
    *(
        "",
        " ",
        "x",
        "none",
        "server",
        "client:0",
        "client:each",
        "client:99999999999999999999",
        "wire",
        "all",
        "~nobody/x",
    ),
    *(
        "../../etc/passwd",
        "/dev/zero",
        "/",
        "x.py:Y",
        "/dev/stdin.py:Y",
        "a" * 300,
        "a" * 3000,
        "[bold]x[/bold]",
        "\u202e",
        "é",
    ),
    *([], {}, [[]], [{}], {"name": None}, {"name": []}, {"a": {"b": {"c": []}}}, list(range(200)), [None], ["x"] * 50),
    {"name": "fedgcn"},
    {"name": "csbm", "csbm": {"nodes": 10**7, "dimensions": 10**7}},
    {"name": "csbm", "csbm": {"classes": 10**9}},
    {"name": "csbm", "csbm": {"class_sizes": [10**6] * 9}},
    {"name": "npz", "path": "/dev/zero"},
    {"name": "npz", "path": "x" * 1999},
    {"name": "csbm-sc", "task": {"nodes": 10**6}},
)
TOKENS = (
    *(
        "9" * 5000,
        "-" + "9" * 4301,
        "1" * 19,
        "0x" + "f" * 400,
        "0o7",
        "1e999",
        "-1e999",
        ".inf",
        ".nan",
        "1:30",
        "2001-13-45",
    ),
    *(
        "[" * 200,
        "{" * 200,
        "]" * 3,
        "}",
        "? ",
        "- ",
        ": ",
        "&a ",
        "*a",
        "&a *a",
        "<<: *a",
        "<<: 3",
        "!!int x",
        "!!float x",
    ),
    *(
        "!!bool maybe",
        "!!null x",
        "!!binary x",
        "!!timestamp x",
        "!!set {a}",
        "!!omap [a]",
        "!!pairs [a]",
        "!!python/name:os.system",
    ),
    *(
        "!!python/object/apply:os.system [x]",
        "!<tag:yaml.org,2002:int> [1]",
        "!!str [1]",
        "!!map [1]",
        "!!seq {a: 1}",
        "!",
    ),
    *(
        "? {a: 1}\n: 2",
        "? [1]\n: 2",
        "1: 2",
        "null: 3",
        "%YAML 3.0",
        "---",
        "...",
        "--- a",
        "| \n x",
        "> \n x",
        "'",
        '"',
        "`",
        "@",
    ),
    *(
        '"\\0"',
        '"\\ud800"',
        '"\\x1b[31m"',
        "\t",
        "\r",
        "\ufeff",
        "\u2028",
        "\x00",
        "\x85",
        "#",
        "|",
        ">",
        "\\",
        "\U0001f600",
    ),
)
BOMBS = (
    "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{d}: &{d} [{','.join(['*' + c] * 9)}]\n" for c, d in zip("abcdefgh", "bcdefghi", strict=True)),
    "a: &a {x: 1}\n"
    + "".join(
        f"{d}: &{d} {{<<: [{','.join(['*' + c] * 9)}], y: *{c}}}\n" for c, d in zip("abcdefgh", "bcdefghi", strict=True)
    ),
    "a: &a [*a]\n",
    "a: &a {b: *a}\n",
    "a: &a {<<: *a}\n",
    "[" * 20000,
    "{a: " * 20000,
    "- " * 20000,
    "? " * 20000,
    "a:\n" + "".join(" " * i + "b:\n" for i in range(1, 600)),
    "seeds: [" + ",".join(map(str, range(30000))) + "]\n",
    "seeds: [" + "0," * 60000 + "0]\n",
    "x: " + "9" * 200000 + "\n",
    "x: '" + "a" * 200000 + "'\n",
    "&a" * 50000,
    "!" * 50000,
    "'" * 100001,
    "#" * 200000,
    "\n" * 200000,
    ("k: 1\n") * 20000,
    "".join(f"k{i}: 1\n" for i in range(15000)),
    "observers: [" + "{parties: [server]}," * 3000 + "]\n",
    "name: " + "a " * 60000,
)


def base(rng: random.Random) -> str:
    """Return the text of an embedded suite without the sets that need files."""
    texts = embedded()
    return texts[rng.choice(sorted(texts))].replace("{name: cora}", "{name: csbm-cora}")


def mutated(rng: random.Random) -> bytes:
    """Return one mutated suite file."""
    kind = rng.random()
    if kind < 0.05:
        bomb = rng.choice(BOMBS)
        return (bomb if rng.random() < 0.5 else base(rng) + bomb).encode("utf-8", "surrogatepass")
    text = base(rng)
    for _ in range(rng.choice((1, 1, 1, 1, 2, 4))):
        text = rng.choice((_bytes, _lines, _tokens, _tree, _tree, _tree, *[_leaf] * 9))(rng, text)
    data = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.05:
        data = bytes(b ^ (1 << rng.randrange(8)) if rng.random() < 0.002 else b for b in data)
    return data


def _bytes(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    what = rng.randrange(4)
    if what == 0:
        return text[:at]
    if what == 1:
        return text[:at] + text[at + rng.randrange(1, 40) :]
    if what == 2:
        return (
            text[:at]
            + "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0x3000)))) for _ in range(3))
            + text[at:]
        )
    return text[:at] + rng.choice("[]{}:,-?&*!|>'\"%@`#\\\n\t ") * rng.choice((1, 1, 2, 50)) + text[at:]


def _lines(rng: random.Random, text: str) -> str:
    lines = text.splitlines()
    if not lines:
        return text
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    what = rng.randrange(4)
    if what == 0:
        del lines[i]
    elif what == 1:
        lines.insert(j, lines[i])
    elif what == 2:
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines[i] = " " * rng.randrange(5) + lines[i].lstrip()
    return "\n".join(lines) + "\n"


def _tokens(rng: random.Random, text: str) -> str:
    places = [i for i, c in enumerate(text) if c in " ,:[{\n"]
    if not places:
        return text
    at = rng.choice(places) + 1
    end = at
    while end < len(text) and text[end] not in " ,:]}\n":
        end += 1
    return text[:at] + rng.choice(TOKENS) + text[rng.choice((at, end)) :]


def _tree(rng: random.Random, text: str) -> str:
    """Change one key or value of the parsed suite; text that is no plain YAML any more stays as it is."""
    try:
        data = read_yaml(text)
        spots = list(_spots(data))
        holder, key = rng.choice(spots)
        what = rng.randrange(5)
        if what == 0 and isinstance(holder, dict):
            holder[_typo(rng, str(key))] = holder.pop(key)
        elif what == 1:
            del holder[key]
        elif what == 2 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        elif what == 3:
            other, name = rng.choice(spots)
            holder[key] = copy.deepcopy(other[name])
        else:
            holder[key] = copy.deepcopy(rng.choice(HOSTILE))
        return yaml.safe_dump(data, default_flow_style=rng.random() < 0.5, width=10**6)
    except (FglauditError, AttributeError, IndexError, TypeError, KeyError):
        return text


def _leaf(rng: random.Random, text: str) -> str:
    """Change one value into another of its type, or into the value that another suite has under that key."""
    try:
        data = read_yaml(text)
        holder, key = rng.choice([spot for spot in _spots(data) if not isinstance(spot[0][spot[1]], (dict, list))])
        value = holder[key]
        alike = [other for other in HOSTILE if type(other) is type(value)]
        elsewhere = [h[k] for h, k in _spots(read_yaml(base(rng))) if k == key]
        holder[key] = copy.deepcopy(rng.choice(elsewhere if elsewhere and rng.random() < 0.4 else alike or [value]))
        return yaml.safe_dump(data, default_flow_style=rng.random() < 0.5, width=10**6)
    except (FglauditError, AttributeError, IndexError, TypeError, KeyError):
        return text


def _spots(value: Any) -> list[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    return [(value, key) for key in keys] + [spot for key in keys for spot in _spots(value[key])]


def _typo(rng: random.Random, name: str) -> str:
    at = rng.randrange(len(name) + 1)
    return rng.choice((name[:at] + name[at + 1 :], name[:at] + "x" + name[at:], name.upper(), name + "s", ""))


def check(path: Path) -> None:
    """What must end in a value or in one message: plan a run of the suite file; load its data where they are small.

    Raises:
        FglauditError: the file is refused.
    """
    from rich.console import Console

    from fglaudit.execution.display import print_plan
    from fglaudit.execution.preflight import check_data
    from fglaudit.rng import derive
    from fglaudit.suite.overrides import load_suite
    from fglaudit.suite.plugin_files import Trust

    suite = load_suite(str(path), trust=Trust(imports=False))
    print_plan(Console(width=200), suite, path.parent / "out")
    for seed in suite.seeds:
        derive(seed, "partition")
    if sum(_size(spec) for spec in suite.datasets) > 3 * 10**7:
        return
    check_data(suite)
    graphs = [spec.load() for spec in suite.datasets]
    for graph, spec in zip(graphs, suite.datasets, strict=True):
        for partition in suite.partitions[:3]:
            try:
                partition.apply(graph, spec, derive(suite.seeds[0], "partition"))
            except FglauditError:  # becomes a failed row of its cells
                continue


def _size(spec: Any) -> float:
    """Numbers that drawing or reading the set takes, roughly; sets that need files count as too many."""
    if spec.csbm is not None:
        return float(spec.csbm.nodes * spec.csbm.dimensions + 20 * spec.csbm.edges)
    if spec.task is not None:
        return float(
            (spec.task.nodes or 200) ** 2 * 50
            + (spec.task.nodes or 200) * (spec.task.samples or 40) * (spec.task.dimensions or 100)
        )
    return 4e6 if spec.name in ("csbm-cora", "csbm", "csbm-dnc", "csbm-snc", "csbm-sc", "npz") else 1e12
