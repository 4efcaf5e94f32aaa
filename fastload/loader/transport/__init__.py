"""The way of a batch from a worker to the training process: shared memory instead of a queue.

    memory     one sparse, nameless stretch of shared memory for all workers of an iteration
    slots      a worker's part of it, cut into slots of the sizes that its batches need
    spans      what a batch's tensors look at, and how each stretch of it travels
    parcel     a batch as a pickle that holds no pixels: they lie in slots
    seeding    random numbers that belong to a batch, wherever it is made
    picklable  which part of a loader cannot be sent to a new process
    collate    the worker's collate_fn, which stacks samples straight into slots
    filling    datasets that fill a batch themselves
    stateful   iterable datasets that tell where they are
    forks      keeps what a forked child may still look at

A slot holds one tensor or array of a batch. The worker takes it, the training process frees it when
the last view of that tensor dies, so a batch that is held never changes, and holding its labels does
not hold its images. Nothing waits: where no slot is free, a tensor goes torch's way.
"""
