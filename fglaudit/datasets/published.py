"""SHA-256 of the published raw files, by path under a data root: what is parsed is what everybody else measured on.

The Planetoid files are Python pickles and run code when they are loaded; one changed bit elsewhere changes figures
unnoticed. So files are compared before anything parses them. Sources, whose files have these sums:

* planetoid: github.com/kimiyoung/planetoid, ``data/``, commit af6abf4
* amazon: github.com/shchur/gnn-benchmark, ``data/npz/``, commit 1e72912
* wikipedia: github.com/graphdml-uiuc-jlu/geom-gcn, ``new_data/`` and ``splits/``, commit f1fc0d1
"""

from __future__ import annotations

_BY_PREFIX = {
    "amazon/Computers/raw/": {
        "amazon_electronics_computers.npz": "736ba1d9fd85eac2da83a5ad25c463f04b0031a6ca01563f90a7099d9e8ffb2c",
    },
    "amazon/Photo/raw/": {
        "amazon_electronics_photo.npz": "bdb1feb8e6ff42ee44024b04479145029c563fd42fc31bff80af20887ba0439a",
    },
    "planetoid/CiteSeer/raw/ind.citeseer.": {
        "allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
        "ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
        "graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
        "test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
        "tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
        "ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
        "x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
        "y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    },
    "planetoid/Cora/raw/ind.cora.": {
        "allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
        "ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
        "graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
        "test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
        "tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
        "ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
        "x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
        "y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    },
    "planetoid/PubMed/raw/ind.pubmed.": {
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
        "y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    },
    "wikipedia/chameleon/geom_gcn/raw/chameleon_split_0.6_0.2_": {
        "0.npz": "36605525b69be4e7df5b31fe6a1d044288c6ebf9f9f0514ca151f6a36afc5e8b",
        "1.npz": "d0779d5a1bedf1967d394468a52c0175fb00595d361fba897faf73322386c952",
        "2.npz": "86ad0d827bf4301dff830598fc0b70d0dd8689c5b4d72dab1d87a6c1970c4c6e",
        "3.npz": "37b3e994adf3afc55e16b617ed05af4e3ce308800755839084d77eced0528e9d",
        "4.npz": "f6b1d067b2b330132839d8b6120077bdc6cf759f7ce421f881a02e2953ec4596",
        "5.npz": "e7661834275c826692510cea0457b18b2c1ee38771f178d06e701b97541a1f6d",
        "6.npz": "16648d1197c1d3a2dec385346212c382030b0d5a8c997f4255aa2afa68a6b174",
        "7.npz": "61adcc53846becefecd466a5364dda23b983d387d1ac5d58c6e24d080c0fcba7",
        "8.npz": "7076ad5341a8218b1f5b6eccf9cfd15d28286ea11ef5c06eeee77af24ff2bf63",
        "9.npz": "743c4f813bf6130398a6511eb9ff07d2366c73bd6c7fddaf226a3f9e2917e0e7",
    },
    "wikipedia/chameleon/geom_gcn/raw/": {
        "out1_graph_edges.txt": "45ac593de9207470090230c8fd76beeb2f60b5371a9be088e8bf31e7f0619a4b",
        "out1_node_feature_label.txt": "5fd29736ff31b43a1bfcf305bc8b4cffc3103fb0957667976b2ea0f78aedcf5b",
    },
    "wikipedia/squirrel/geom_gcn/raw/": {
        "out1_graph_edges.txt": "453d8e96754d68e2ab0a7ebb56f93506b59531d95abaec7a2b46fe1eae7c39cd",
        "out1_node_feature_label.txt": "ac15ab755983717a187992eef8ce2017aae33ea444fd655b07e4662690dcc03a",
    },
    "wikipedia/squirrel/geom_gcn/raw/squirrel_split_0.6_0.2_": {
        "0.npz": "f112b88d3354e86d164d4d915b6a1f695c10f0e01e3e6b9893fc7b09bb93191d",
        "1.npz": "2486c687c8befb55930a6237f76f1d86ce2ba345782eda6157f4e752d05f304f",
        "2.npz": "d62ff83862ad96022d3400dfc9b7ca405834ca62767319d97c36b3f02db978c0",
        "3.npz": "af3d90e0b2718ac7417e10e8b5b382443667412e846cabc3cc4e4a592f4cedae",
        "4.npz": "fbe848298bb72b88db0704050cf216e2a93c916540d577906f3e644b679a6a2c",
        "5.npz": "cd04fab46a181151ddd97ce93c65fe79558fb79ffa230b62f488ebfaf5fdcd75",
        "6.npz": "b9189f7903ca7556a025c54dd5be6c00ec5952d4299e71630bc9876157676412",
        "7.npz": "ea7fb3ca5d5aa45b917b99fb7d64d4e87322b2b5303a0156c547aa3f1a6c8941",
        "8.npz": "b43faa190ca6dd4885a39dfc2a93d59f56f5174f3567bdbc49b18dd9cd9b7fb4",
        "9.npz": "529ade4b86fd191908a96011f25c454653083674b6d4f090b3fdd27af2d14f62",
    },
}
PUBLISHED = {prefix + rest: digest for prefix, sums in _BY_PREFIX.items() for rest, digest in sums.items()}
