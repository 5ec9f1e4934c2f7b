"""What attacks of several families share: priors, the observer's knowledge, readers of FedGT's uploads, self-tests."""
