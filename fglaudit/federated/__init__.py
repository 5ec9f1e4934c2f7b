"""Federated training that several protocols share: clients' data, local steps, averaging, progress."""
