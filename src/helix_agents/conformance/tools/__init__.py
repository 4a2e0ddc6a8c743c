"""What the checks are built from: workers, injected faults, samples, dumps."""
