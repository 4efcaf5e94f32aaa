"""The DataLoader: strategies for an epoch, shared-memory transport, tuning, resuming, batches on a device."""
