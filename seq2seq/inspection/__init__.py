"""The checks of corpora by `s2s check`: odd lines, pairs that do not correspond, overlap, and advice on sizes."""
