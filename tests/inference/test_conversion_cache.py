"""How long converted models stay in the cache of the user, and how it is listed and cleared.

`test_ctranslate2_folders.py` tests what is in it.
"""

import json
import os
import time
from pathlib import Path

import pytest
from support.our_models import make_ours

from seq2seq import Translator, atomic
from seq2seq.cli import main
from seq2seq.config.schema import SearchConfig
from seq2seq.inference.conversion_cache import KEPT_SECONDS

OLD = KEPT_SECONDS + 60


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache, and `use(name)`, which translates with a model of this name and returns its entry."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root, known = tmp_path / "cache" / "seq2seq" / "ctranslate2", {}

    def use(name):
        if name not in known:
            make_ours(tmp_path / name, ending=3.0, seed=len(known), search=SearchConfig(beam_size=2))
        before = set(root.glob("*-*"))
        Translator.load(tmp_path / name, engine="ctranslate2")
        (new,) = set(root.glob("*-*")) - before or {known[name]}
        return known.setdefault(name, new)

    return use


def age(entry, seconds):
    then = time.time() - seconds
    os.utime(entry, (then, then))


def s2s_info(*arguments, capsys) -> str:
    assert main(["info", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_a_conversion_that_no_one_uses_goes_with_the_next_one(cache):
    first, second = cache("a"), cache("b")
    age(first, OLD)
    age(second, KEPT_SECONDS - 60)
    third = cache("c")
    assert [entry.exists() for entry in (first, second, third)] == [False, True, True]
    assert cache("a").exists()  # it is made again


def test_every_use_counts(cache):
    first = cache("a")
    age(first, OLD)
    cache("a")
    cache("b")
    assert first.exists()


def test_a_conversion_that_is_being_opened_stays(cache):
    first = cache("a")
    age(first, OLD)
    with atomic.locked(first.parent / f"{first.name.partition('-')[0]}.lock"):
        cache("b")
    assert first.exists()


def test_the_cache_is_listed_and_cleared(cache, tmp_path, capsys):
    assert s2s_info("--cache", capsys=capsys) == "the cache has no converted models\n"
    first, second = cache("a"), cache("b")
    age(first, 3600)
    rows = json.loads(s2s_info("--cache", "-f", "json", capsys=capsys))
    assert [row["path"] for row in rows] == [str(second), str(first)]
    assert [row["model"] for row in rows] == [str(tmp_path / "b"), str(tmp_path / "a")]
    assert rows[0]["bytes"] >= (second / "model.bin").stat().st_size
    assert {Path(row["path"]).name.endswith(row["quantization"]) for row in rows} == {True}
    head, *lines = s2s_info("--cache", capsys=capsys).splitlines()
    assert head.startswith("model")
    assert [line.split()[0] for line in lines] == [row["model"] for row in rows]
    (first.parent / f".x.{2**22 + 1}-{atomic._HOST}{atomic._TOKEN}-1.writing").mkdir()  # of a killed process
    with atomic.locked(first.parent / f"{first.name.partition('-')[0]}.lock"):
        assert s2s_info("--clear-cache", capsys=capsys).startswith("deleted 1 converted model (")
    assert list(first.parent.glob("*-*")) == [first]
    size = sum(path.stat().st_size for path in first.iterdir()) / 2**20
    assert s2s_info("--clear-cache", capsys=capsys) == f"deleted 1 converted model ({size:.1f} MiB)\n"
    assert s2s_info("--clear-cache", capsys=capsys) == "deleted 0 converted models (0.0 MiB)\n"
    assert cache("a").exists()  # it is made again
