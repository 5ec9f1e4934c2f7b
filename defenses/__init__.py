"""Defenses: one per file. The table is the only list of built-in ones; other distributions register entry points."""

DEFENSES: dict[str, str] = {
    "none": "fglaudit.defenses.none:NoDefense",
    "drop-singletons": "fglaudit.defenses.drop_singletons:DropSingletons",
    "clipped-laplace": "fglaudit.defenses.clipped_laplace:ClippedLaplace",
    "gaussian": "fglaudit.defenses.gaussian:Gaussian",
}
