"""Other toolkits in `s2s bench`: each line has its own limit, and what one raises or sets leaves the others."""

import pytest
import torch
from support.our_models import make_ours

from seq2seq.bench.decoding_peers import BareCTranslate2, length_limit
from seq2seq.bench.measure import OURS, Entrant, compare
from seq2seq.runtime import Runtime

CPU = Runtime(torch.device("cpu"), torch.float32)


def test_a_long_line_gives_other_batches_no_higher_limit(tmp_path):
    """With a model that never ends a translation, each has as many pieces as the longest limit of its batch allows."""
    pytest.importorskip("ctranslate2")
    loaded = make_ours(tmp_path / "model", ending=-100.0)
    search = loaded.description.search.model_copy(update={"beam_size": 1, "min_length": 0})
    lines = ["a man", "two dogs play " * 3, "a dog"]
    short, other, long = sorted(length_limit(row, search) for row in loaded.tokenizers.source.encode_all(lines))
    for size, expected in ((1, short + other + long), (2, short + 2 * long)):
        system = BareCTranslate2(loaded, "float32", CPU, size, tmp_path / f"export {size}")
        assert system.translate(lines, search)[1] == expected


def test_what_another_toolkit_raises_leaves_the_others(monkeypatch):
    """Each round of products has the threads of the beginning, whatever an entrant changes."""

    def fails():
        raise RuntimeError("no kernel")

    def turns():
        torch.set_num_threads(5)
        return {"flops_per_second": 1.0}

    threads, measured = torch.get_num_threads(), []
    monkeypatch.setattr("seq2seq.bench.measure.matmul_rate", lambda *_: measured.append(torch.get_num_threads()) or 1.0)
    ours = (OURS, lambda: [Entrant(OURS, "", turns, {})])
    try:
        systems, left_out, _ = compare([ours, ("other", fails), ("other", fails)], 3, CPU, 32, lambda what: None)
        assert measured == [threads] * 3
    finally:
        torch.set_num_threads(threads)
    assert [system["name"] for system in systems] == [OURS]
    assert left_out == {"other": "no kernel; no kernel"}
    with pytest.raises(RuntimeError):
        compare([(OURS, fails)], 1, CPU, 32, lambda what: None)
