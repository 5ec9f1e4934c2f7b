"""Pages that are made from docstrings when the site is built, a hook of mkdocs: one per protocol, attack, defense, data
set, partition and suite, and one per module of the Python interface."""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from fglaudit.catalog import CATALOG
from fglaudit.catalog.plugins import described
from fglaudit.plugins.class_source import UnreadableError

ROOT = Path(__file__).parents[2]
PLUGINS = {"protocols": "protocol", "attacks": "attack", "defenses": "defense"}
MODULES = {
    "fglaudit": "One call, and step by step",
    "fglaudit.interfaces": "Protocols, attacks and defenses: what a plugin implements",
    "fglaudit.facts": "Facts: what a defense states",
    "fglaudit.payloads": "Payloads: what is sent",
    "fglaudit.structure": "Statements: what attacks may know of a protocol",
    "fglaudit.context": "Contexts: what a defense is bound to",
    "fglaudit.observers": "Observers of a suite",
    "fglaudit.partition": "Partitions of a suite",
    "fglaudit.view": "Views: what an attack gets",
    "fglaudit.graph": "Graphs",
    "fglaudit.finding": "Findings: the columns of findings.csv",
    "fglaudit.guarantees": "Guarantees: verified, claimed, refuted",
    "fglaudit.testing": "The conformance kit",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    reference: list[Any] = [
        {kind.capitalize(): [f"reference/{kind}/index.md", *({n: _page(kind, n)} for n in section.entries())]}
        for kind, section in CATALOG.items()
    ]
    reference.append({"Python": [{title: f"reference/python/{name}.md"} for name, title in MODULES.items()]})
    config.nav = [*(config.nav or []), {"Reference": reference}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for kind, section in CATALOG.items():
        entries = section.entries()
        listed = "\n".join(f"| [{name}]({name}.md) | {_cell(said)} |" for name, said in entries.items())
        text = f"# {kind.capitalize()}\n\n| name | what it is |\n|---|---|\n{listed}\n"
        files.append(File.generated(config, f"reference/{kind}/index.md", content=text))
        for name in entries:
            text = _explained(kind, name, section.explain(name))
            files.append(File.generated(config, _page(kind, name), content=text))
    for module, title in MODULES.items():
        files.append(File.generated(config, f"reference/python/{module}.md", content=_module(module, title)))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """End the build where a fenced block was taken for text, which no other check of mkdocs sees.

    Raises:
        PluginError: the page shows the fence of a block.
    """
    if "```" in html:
        raise PluginError(f"{page.file.src_uri}: a fenced block must come out as code; one stands there as text")
    return html


def _page(kind: str, name: str) -> str:
    return f"reference/{kind}/{name}.md"


def _explained(kind: str, name: str, text: str) -> str:
    if kind not in PLUGINS:
        return f"# {name}\n\n```\n{text}\n```\n"
    try:
        found = described(PLUGINS[kind], name)
    except UnreadableError:
        return f"# {name}\n\n```\n{text}\n```\n"
    fields = "\n".join(f"- `{field}`" for field in found.fields) or "none"
    rest = "\n".join(f"- {attribute}" for attribute in found.attributes)
    return "\n\n".join([f"# {name}", *map(markdown, found.docs), "## Fields", fields, rest]) + "\n"


def _module(name: str, title: str) -> str:
    module = import_module(name)
    parts = [f"# {title}", f"`{name}`", markdown(inspect.getdoc(module) or "")]
    public = getattr(module, "__all__", None) or [n for n in _defined(module) if not n.startswith("_")]
    for each in public:
        found = getattr(module, each)
        if inspect.isclass(found) or inspect.isfunction(found):
            parts += [f"## {each}", _signature(each, found), markdown(inspect.getdoc(found) or "")]
            parts += _methods(found) if inspect.isclass(found) else []
    return "\n\n".join(parts) + "\n"


def _defined(module: Any) -> list[str]:
    """Return the classes and functions of a module in the order of its source."""
    tree = ast.parse(inspect.getsource(module))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]


def _methods(cls: Any) -> list[str]:
    parts = []
    for name, found in vars(cls).items():
        function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            doc = markdown(inspect.getdoc(function) or "")
            parts += [f"### {cls.__name__}.{name}", _signature(name, function), doc]
    return parts


def _signature(name: str, found: Any) -> str:
    try:
        text = f"{name}{inspect.signature(found)}"
    except (TypeError, ValueError):
        text = name
    return f"```python\n{text}\n```"


def markdown(doc: str) -> str:
    """Return a docstring as markdown: roles and double backticks become code, sections become lists."""
    text = re.sub(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`", r"`\1`", doc).replace("``", "`")
    text = re.sub(r"^(Args|Attributes|Raises|Returns|Yields):$", r"\n**\1**\n", text, flags=re.MULTILINE)
    # Entries of a section are indented by four, their further lines by eight: a list with continued lines.
    lines = []
    for line in text.splitlines():
        entry = re.match(r"^    (\S.*)$", line)
        further = re.match(r"^ {8}(\S.*)$", line)
        if entry:
            named = re.match(r"([\w, ]+): (.*)", entry[1])
            lines.append(f"- **{named[1]}**: {named[2]}" if named else f"- {entry[1]}")
        else:
            lines.append(f"  {further[1]}" if further else line)
    return "\n".join(lines)


def _cell(text: str) -> str:
    return markdown(text).replace("|", "\\|").replace("\n", " ")
