"""Packing: sources → shards, in parallel, resumable, atomic; verification and unpacking of the result.

options    checked options of a packing      choose    the encoding that suits a source (auto)
chunk      source records → stored rows      workers   the processes that encode chunks
assemble   chunks → shards, in order         staging   the folder until the rename, for resuming
split      the packing of one split          job       all of it together
"""
