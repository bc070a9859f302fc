"""Buffers that keep their precision when a model is cast."""

from torch import nn


class Float32Buffers(nn.Module):
    """A module whose buffers stay float32 when the model is cast to 16 bits.

    In 16 bits, distant positions would be equal, and a dropout rate of 0.1 would be 0.1001.
    """

    def _apply(self, fn, recurse=True):
        buffers = dict(self._buffers)
        super()._apply(fn, recurse)
        for name, buffer in buffers.items():
            self._buffers[name] = buffer.to(self._buffers[name].device)
        return self
