"""``summary.tex``: the answers per setting as tables for a paper; needs booktabs and longtable."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fglaudit.reports.answers_table import AnswerCell
from fglaudit.reports.epsilons import accounted_words
from fglaudit.reports.formats.pages import Section
from fglaudit.reports.numbers import MINUS, MISSING, THIN, percent
from fglaudit.reports.wording.observers import observer_label

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "ε": r"$\varepsilon$", "±": r"$\pm$", "\N{RIGHT SINGLE QUOTATION MARK}": "'", THIN: r"\,",
    MINUS: r"$-$", MISSING: "--", "\N{MULTIPLICATION SIGN}": r"$\times$",
}  # fmt: skip
_PATTERN = re.compile("|".join(map(re.escape, _SPECIAL)))


def latex(text: str) -> str:
    """Return ``text`` with everything escaped that LaTeX would read; line breaks become spaces."""
    return _PATTERN.sub(lambda found: _SPECIAL[found[0]], " ".join(text.split("\n")))


def summary_tex(sections: Sequence[Section]) -> str:
    """Return one longtable per data set and partition with the cells of the page's table of answers."""
    lines = [r"% \usepackage{booktabs,longtable}"]
    for section in sections:
        if not section.heat:
            continue
        heads = [
            "Protocol",
            "Defense",
            "Accuracy",
            "Chance",
            "Bought",
            *map(observer_label, section.observers),
            "ε accounted",
        ]
        width = f"p{{{0.6 / max(1, len(section.observers)):.2f}\\linewidth}}"
        lines += [
            rf"\begin{{longtable}}{{llrrl{width * len(section.observers)}r}}",
            rf"\caption{{{latex(section.title)}}}\\",
            r"\toprule",
            _line(heads),
            r"\midrule",
            r"\endhead",
        ]
        for row in section.heat:
            accounted = accounted_words(row.setting)
            cells = [_cell(cell) for cell in row.cells]
            lines.append(
                _line(
                    [row.protocol, row.defense, row.accuracy_text, percent(row.chance), row.bought, *cells, accounted]
                )
            )
        lines += [r"\bottomrule", r"\end{longtable}"]
    return "\n".join(lines) + "\n"


def _cell(cell: AnswerCell | None) -> str:
    return "" if cell is None else f"{cell.main.word.value}: {cell.text}"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(latex(cell) for cell in cells) + r" \\"
