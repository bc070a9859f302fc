"""`s2s check` finds what the README of the real corpora lists of their French and Japanese parts."""

import pytest
from test_check import found, parallel

from seq2seq.inspection.check import Corpora, check_corpora

pytestmark = pytest.mark.slow


def test_the_oddities_of_french_captions_are_found(real_data):
    folder, languages = real_data / "multi30k", ("en", "fr")
    held_out = {name: parallel(folder, name, languages) for name in ("val", "test_2016_flickr", "test_2017_flickr")}
    report = check_corpora(Corpora([parallel(folder, "train", languages)], held_out, languages))
    french = found(report, "train", "target")
    assert (french["repeated"], french["leading_space"], french["double_space"]) == (32, 27, 42)
    shared = report.overlaps["train"]
    assert (shared["val"].source_exact, shared["val"].target_exact) == (1, 3)
    assert (shared["test_2016_flickr"].source_exact, shared["test_2016_flickr"].target_exact) == (0, 0)
    assert (shared["test_2017_flickr"].source_exact, shared["test_2017_flickr"].target_exact) == (0, 1)


def test_the_english_that_japanese_test_sets_share_with_training_is_found(real_data):
    folder, languages = real_data / "small_enja", ("en", "ja")
    if not folder.exists():
        pytest.skip("needs small_enja under $S2S_DATA")
    held_out = {name: parallel(folder, name, languages) for name in ("dev", "test")}
    report = check_corpora(Corpora([parallel(folder, "train", languages)], held_out, languages))
    shared = report.overlaps["train"]
    for name, english in (("dev", 77), ("test", 60)):
        assert shared[name].pair_exact == 0
        assert (shared[name].source_exact, shared[name].target_exact) == (english, 0)
    assert report.corpora[0].examples == 50_000
    assert {problem.corpus for problem in report.problems} >= {"dev", "test"}
