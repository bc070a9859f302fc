"""`s2s check` finds what the notes on the real corpora list of them."""

from pathlib import Path

import pytest

from seq2seq.config.corpora import SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.inspection.check import CheckReport, Corpora, check_corpora
from seq2seq.lines import read_lines

pytestmark = pytest.mark.slow
# Oddities do not depend on the tokenizer; training one of this kind takes a seventh of the time.
TOKENIZER = TokenizerConfig(kind="bpe")


def parallel(folder: Path, name: str, languages: tuple[str, str]) -> SourceConfig:
    return SourceConfig(source=folder / f"{name}.{languages[0]}.gz", target=folder / f"{name}.{languages[1]}.gz")


def found(report: CheckReport, corpus: str, side: str) -> dict[str, int]:
    (chosen,) = [c for c in report.corpora if c.name == corpus]
    return {kind: finding.count for kind, finding in chosen.sides[side].findings.items()}


def test_the_oddities_of_multi30k_are_found(real_data):
    folder, languages = real_data / "multi30k", ("en", "de")
    held_out = {name: parallel(folder, name, languages) for name in ("val", "test_2016_flickr", "test_2017_flickr")}
    report = check_corpora(Corpora([parallel(folder, "train", languages)], held_out, languages, tokenizer=TOKENIZER), 1)
    assert report.ok
    assert found(report, "train", "source") == {"repeated": 9, "entity": 16, "double_space": 1}
    assert found(report, "train", "target") == {
        "repeated": 25, "no_words": 2, "entity": 1, "tokenised": 19, "tab": 1, "odd_space": 44,
        "trailing_space": 40, "double_space": 44,
    }  # fmt: skip
    train = report.corpora[0]
    assert train.findings["duplicate"].count == 3
    assert [number for number, _ in train.sides["target"].findings["no_words"].examples] == [16510, 16664]
    assert [number for number, _ in train.sides["target"].findings["tab"].examples] == [7366]
    assert found(report, "val", "target")["odd_space"] == 1
    assert found(report, "test_2017_flickr", "source")["double_space"] == 14
    shared = report.overlaps["train"]
    assert (shared["val"].source_exact, shared["val"].target_exact) == (1, 1)
    assert not shared["test_2016_flickr"].counts()
    assert (shared["test_2017_flickr"].source_exact, shared["test_2017_flickr"].target_exact) == (0, 2)


def test_the_oddities_of_sst2_and_tatoeba_are_found(real_data, tmp_path):
    if not (real_data / "sst2").exists() or not (real_data / "tatoeba").exists():
        pytest.skip("needs sst2 and tatoeba under $S2S_DATA")
    sst2 = Corpora(
        [SourceConfig(tsv=real_data / "sst2/train.tsv.gz")],
        {"dev": SourceConfig(tsv=real_data / "sst2/dev.tsv.gz")},
        None,
        tokenizer=TOKENIZER,
    )
    report = check_corpora(sst2, 1)
    assert report.corpora[0].labels == {"0": 29780, "1": 37569}
    assert report.corpora[0].contradictions.count == 5
    assert found(report, "train", "text")["repeated"] == 371
    assert found(report, "train", "text")["trailing_space"] == 67349
    assert report.overlaps["train"]["dev"].pair_exact == 0
    languages = ("en", "de")
    held_out = {name: parallel(real_data / "tatoeba", name, languages) for name in ("valid", "test")}
    for side in languages:  # a third of the corpus is enough
        lines = list(read_lines(real_data / "tatoeba" / f"train.{side}.gz"))[:50_000]
        (tmp_path / f"train.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    train = SourceConfig(source=tmp_path / "train.en", target=tmp_path / "train.de")
    report = check_corpora(Corpora([train], held_out, languages, tokenizer=TOKENIZER), 1)
    assert report.corpora[0].contradictions.count > 3_000
    assert found(report, "train", "target")["odd_space"] > 30
    for overlap in report.overlaps["train"].values():
        assert overlap.source_exact == overlap.source_normalised == overlap.target_exact == 0


def test_the_english_that_japanese_test_sets_share_with_training_is_found(real_data):
    folder, languages = real_data / "small_enja", ("en", "ja")
    if not folder.exists():
        pytest.skip("needs small_enja under $S2S_DATA")
    held_out = {name: parallel(folder, name, languages) for name in ("dev", "test")}
    report = check_corpora(Corpora([parallel(folder, "train", languages)], held_out, languages, tokenizer=TOKENIZER), 1)
    shared = report.overlaps["train"]
    for name, english in (("dev", 77), ("test", 60)):
        assert shared[name].pair_exact == 0
        assert (shared[name].source_exact, shared[name].target_exact) == (english, 0)
    assert report.corpora[0].examples == 50_000
    assert {problem.corpus for problem in report.problems} >= {"dev", "test"}
