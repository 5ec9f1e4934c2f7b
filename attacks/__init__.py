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
    "power-moments": "fglaudit.attacks.power_moments:PowerMoments",
    "merged-rows": "fglaudit.attacks.merged_rows:MergedRows",
    "gram-peeling": "fglaudit.attacks.gram_peeling:GramPeeling",
    "embedding-inversion": "fglaudit.attacks.embedding_inversion:EmbeddingInversion",
    "embedding-neighbors": "fglaudit.attacks.embedding_neighbors:EmbeddingNeighbors",
    "raw-features": "fglaudit.attacks.raw_features:PlainFeatures",
    "jacobian-reading": "fglaudit.attacks.jacobian_reading:JacobianReading",
    "representation-inversion": "fglaudit.attacks.representation_inversion:RepresentationInversion",
    "label-reading": "fglaudit.attacks.label_reading:LabelReading",
    "mask-flip": "fglaudit.attacks.mask_flip:MaskFlip",
}
