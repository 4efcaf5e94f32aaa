"""`fastload.compile`: datasets and transforms of other libraries with the same samples, made faster."""
