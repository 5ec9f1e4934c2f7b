"""What stops the attacks on features, per protocol and observer: suites of noise in steps, then confirmed."""
