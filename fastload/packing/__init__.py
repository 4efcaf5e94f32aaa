"""Packing of sources into shards, parallel, resumable and atomic; verification and unpacking of the result.

The steps of a job (job.py):

1. Its options are checked (_options), and so is the destination (_destination); its staging is locked
   (_staging, _locks), the source is listed, and the encoding is chosen (choose).
2. If an interrupted run had the same job, its finished shards (_journal) are kept, otherwise everything is
   removed. The partition (_partition) says which records each shard takes.
3. An executor packs the shards, all or those of one part: processes on this machine (_local, _workers), or
   tasks on a Ray cluster (_ray). They encode chunks of records (_chunk), and assemble shards (_assemble).
4. The manifests are written, for parts by merge.py, and the dataset appears at the destination.
"""
