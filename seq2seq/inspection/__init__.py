"""What `s2s check` knows about corpora."""
