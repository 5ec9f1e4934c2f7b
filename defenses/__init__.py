"""Defenses: one per file. The table is the only list of built-in ones; other distributions register entry points."""

DEFENSES: dict[str, str] = {
    "none": "fglaudit.defenses.none:NoDefense",
    "clipped-noise": "fglaudit.defenses.clipped_noise:ClippedNoise",
    "drop-singletons": "fglaudit.defenses.drop_singletons:DropSingletons",
    "minimum-neighborhood": "fglaudit.defenses.minimum_neighborhood:MinimumNeighborhood",
    "merge-neighbors": "fglaudit.defenses.merge_neighbors:MergeNeighbors",
    "fewer-features": "fglaudit.defenses.fewer_features:FewerFeatures",
    "clipping": "fglaudit.defenses.clipping:Clipping",
    "joint-noise": "fglaudit.defenses.joint_noise:JointNoise",
    "quantisation": "fglaudit.defenses.quantisation:Quantisation",
    "clipped-laplace": "fglaudit.defenses.clipped_laplace:ClippedLaplace",
    "dp-fedavg": "fglaudit.defenses.dp_fedavg:DpFedAvg",
    "dp-sgd": "fglaudit.defenses.dp_sgd:DpSgd",
    "secure-aggregation": "fglaudit.defenses.secure_aggregation:SecureAggregation",
    "homomorphic-encryption": "fglaudit.defenses.homomorphic_encryption:HomomorphicEncryption",
    "local-features": "fglaudit.defenses.local_features:LocalFeatures",
    "multi-bit": "fglaudit.defenses.multi_bit:MultiBit",
    "gaussian": "fglaudit.defenses.gaussian:Gaussian",
}
