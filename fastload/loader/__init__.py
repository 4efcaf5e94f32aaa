"""The DataLoader: how an epoch is begun, shared-memory transport, tuning, resuming, batches on a device."""
