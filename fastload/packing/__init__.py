"""Packing of sources into shards, parallel, resumable and atomic; verification and unpacking of the result.

The steps of a job (job.py):

1. Its options are checked (_options), the staging folder beside the destination is locked (_staging), the
   source is listed, and the encoding is chosen (choose).
2. If an interrupted run had the same job, its finished shards are kept, otherwise everything is removed.
3. For each split (_split), workers (_workers) encode chunks of records and write the images (_chunk) at the
   offsets that the assembler assigns; once all images of a shard are written, it is finished (_assemble).
4. The manifests are written, and the folder is renamed to the destination.
"""
