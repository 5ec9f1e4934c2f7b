"""Attacks: one per file. The table is the only list of built-in ones; other distributions register entry points."""

ATTACKS: dict[str, str] = {
    "subset-sum": "fglaudit.attacks.subset_sum:SubsetSum",
    "row-space": "fglaudit.attacks.row_space:RowSpace",
    "maximum-a-posteriori": "fglaudit.attacks.maximum_a_posteriori:MaximumAPosteriori",
    "integer-propagation": "fglaudit.attacks.integer_propagation:IntegerPropagation",
    "server-partial-sums": "fglaudit.attacks.server_partial_sums:ServerPartialSums",
    "joint-diagonalisation": "fglaudit.attacks.joint_diagonalisation:JointDiagonalisation",
    "second-moments": "fglaudit.attacks.moments:SecondMoments",
    "vector-columns": "fglaudit.attacks.vector_columns:VectorColumns",
    "sparse-recovery": "fglaudit.attacks.sparse_recovery:SparseRecovery",
    "weight-replay": "fglaudit.attacks.weight_replay:WeightReplay",
    "masked-rounds": "fglaudit.attacks.masked_rounds:MaskedRounds",
    "weight-difference": "fglaudit.attacks.weight_difference:WeightDifference",
    "update-l1-norms": "fglaudit.attacks.update_norms:UpdateL1Norms",
    "update-squared-norms": "fglaudit.attacks.update_norms:UpdateSquaredNorms",
    "latent-similarity": "fglaudit.attacks.latent_similarity:LatentSimilarity",
    "latent-labels": "fglaudit.attacks.latent_labels:LatentLabels",
    "latent-decoder": "fglaudit.attacks.latent_decoder:LatentDecoder",
    "raw-features": "fglaudit.attacks.raw_features:PlainFeatures",
}
