"""Shared-memory transport of batches between worker processes and the training process.

    memory         one sparse, anonymous shared-memory file for all workers of an iterator, and a worker's
                   section of it, divided into slots of the sizes that its batches need
    serialization  a batch as a pickle without its pixels, which stay in slots
    seeding        tasks, with random numbers that do not depend on the process
    making         datasets that fill a batch, and the worker's collate_fn, which stacks samples directly into
                   slots
    picklable      errors for parts of a loader that cannot be sent to a worker

A slot holds one tensor or array of a batch. The worker takes the slot; the training process frees it when
the last view of that tensor is gone. So a batch that is held never changes, and holding its labels does not
hold its images. Nothing blocks: if no slot is free, the tensor is sent in torch's own way.
"""
