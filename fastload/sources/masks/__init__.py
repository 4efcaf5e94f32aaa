"""Images with one mask each."""
