"""From a source's records to shards: the partition, chunks of stored rows, and their assembly."""
