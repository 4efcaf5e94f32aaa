"""Packing: sources → shards, in parallel, resumable, atomic.

options    what may be asked for              choose     which encoding suits (auto)
schedule   which records come next            piece      records → stored rows, in a worker
workers    the processes                      assemble   pieces → shards, in order
flow       main process and workers           staging    lock, resume, the final rename
result     what it tells                      job        all of it together
"""
