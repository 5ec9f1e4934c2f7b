"""Defenses: one per file. The table is the only list of built-in ones; other distributions register entry points."""

DEFENSES: dict[str, str] = {
    "none": "fglaudit.defenses.none:NoDefense",
    "clipped-noise": "fglaudit.defenses.noise.clipped_noise:ClippedNoise",
    "drop-singletons": "fglaudit.defenses.graph.drop_singletons:DropSingletons",
    "minimum-neighborhood": "fglaudit.defenses.graph.minimum_neighborhood:MinimumNeighborhood",
    "merge-neighbors": "fglaudit.defenses.graph.merge_neighbors:MergeNeighbors",
    "fewer-features": "fglaudit.defenses.graph.fewer_features:FewerFeatures",
    "clipping": "fglaudit.defenses.noise.clipping:Clipping",
    "joint-noise": "fglaudit.defenses.noise.joint_noise:JointNoise",
    "quantisation": "fglaudit.defenses.noise.quantisation:Quantisation",
    "clipped-laplace": "fglaudit.defenses.noise.clipped_laplace:ClippedLaplace",
    "dp-fedavg": "fglaudit.defenses.training.dp_fedavg:DpFedAvg",
    "dp-sgd": "fglaudit.defenses.training.dp_sgd:DpSgd",
    "secure-aggregation": "fglaudit.defenses.aggregation.secure_aggregation:SecureAggregation",
    "threshold-encryption": "fglaudit.defenses.encryption.threshold_encryption:ThresholdEncryption",
    "homomorphic-encryption": "fglaudit.defenses.encryption.homomorphic_encryption:HomomorphicEncryption",
    "local-features": "fglaudit.defenses.noise.local_features:LocalFeatures",
    "k-ary-response": "fglaudit.defenses.noise.k_ary_response:KAryResponse",
    "multi-bit": "fglaudit.defenses.noise.multi_bit:MultiBit",
    "gaussian": "fglaudit.defenses.noise.gaussian:Gaussian",
    "stack": "fglaudit.defenses.stack:Stack",
}
