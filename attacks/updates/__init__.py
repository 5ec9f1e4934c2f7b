"""Attacks on ``ModelUpdate`` of FedGT: the models or model changes that clients upload, one round or several."""
