"""Parallel, resumable and atomic packing of sources into shards; verification and unpacking of the result.

The steps of a job (job.py):

1. The options and the destination are checked, the staging folder is locked (staging/), the
   source is listed, and the encoding is chosen.
2. If an interrupted run had the same job, its finished shards are reused; otherwise everything is removed.
   The partition assigns the records to shards.
3. An executor packs all shards, or those of one part, in processes on this machine or in tasks on a Ray
   cluster (running/). These encode chunks of records, and assemble shards (encoding/).
4. The manifests are written (by merge.py, if parts were packed), and the dataset appears at the destination.
"""
