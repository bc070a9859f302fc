"""Every setting: the sections of a configuration, their values and limits, and the file that holds them.

`schema` and `corpora` declare the keys, `file` reads, resolves and writes them. Nothing here imports torch.
"""
