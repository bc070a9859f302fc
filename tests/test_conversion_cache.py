"""How long converted models stay in the user's cache; `test_ctranslate2.py` tests what is in it."""

import os
import time

import pytest
from our_models import make_ours

from seq2seq import Translator, atomic
from seq2seq.config import SearchConfig
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
