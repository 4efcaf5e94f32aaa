"""What the user left unsaid, decided from measurements: the epoch's own batches are the trials."""
