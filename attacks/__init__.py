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
    "raw-features": "fglaudit.attacks.raw_features:PlainFeatures",
    "global-node-denoising": "fglaudit.attacks.global_node_denoising:GlobalNodeDenoising",
    "global-node-labels": "fglaudit.attacks.global_node_labels:GlobalNodeLabels",
    "global-node-linkage": "fglaudit.attacks.linkage:GlobalNodeLinkage",
    "global-node-membership": "fglaudit.attacks.global_node_membership:GlobalNodeMembership",
    "update-linkage": "fglaudit.attacks.linkage:UpdateLinkage",
    "update-labels": "fglaudit.attacks.update_labels:UpdateLabels",
    "one-node-clusters": "fglaudit.attacks.one_node_clusters:OneNodeClusters",
    "absent-words": "fglaudit.attacks.absent_words:AbsentWords",
}
