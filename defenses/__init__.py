"""Defenses: one per file. The table is the only list of built-in ones; other distributions register entry points."""

DEFENSES: dict[str, str] = {
    "none": "fglaudit.defenses.none:NoDefense",
    "clipped-noise": "fglaudit.defenses.clipped_noise:ClippedNoise",
    "drop-singletons": "fglaudit.defenses.drop_singletons:DropSingletons",
    "gaussian": "fglaudit.defenses.gaussian:Gaussian",
}
