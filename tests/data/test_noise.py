"""Laws of noise: reproducible, in the shares that were asked for, each kind alone on the sides that it names."""

import pickle
import random

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.config.corpora import NoiseConfig, SourceConfig
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.corpus import prepare_corpus
from seq2seq.data.examples import LabelledText, Pair
from seq2seq.data.noise import EMOJI, perturbed, with_typos
from seq2seq.data.sources import open_labelled, open_pairs
from seq2seq.errors import UserError
from seq2seq.text.scripts import graphemes
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

TEXT = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=40)
PAIR = Pair("Two dogs are playing, outside in the snow.", "Zwei Hunde spielen draußen im Schnee.")


def only(kind, example=PAIR, seed=1):
    return perturbed(example, NoiseConfig(**{kind: 1.0}), random.Random(seed))


@given(source=TEXT, target=TEXT, seed=st.integers(0, 99))
def test_any_text_stays_one_line_and_no_noise_changes_nothing(source, target, seed):
    pair = Pair(source, target)
    assert perturbed(pair, NoiseConfig(), random.Random(seed)) == pair
    everything = NoiseConfig(**dict.fromkeys(NoiseConfig.kinds, 0.5))
    found = perturbed(pair, everything, random.Random(seed))
    assert found == perturbed(pair, everything, random.Random(seed))
    assert all(len(text.splitlines()) <= max(1, len((source + target).splitlines()) + 1) for text in found.texts)


def test_case_and_punctuation_change_both_sides_alike():
    assert only("upper") == Pair(PAIR.source.upper(), PAIR.target.upper())
    assert only("title").source == "Two Dogs Are Playing, Outside In The Snow."
    assert only("title").target == "Zwei Hunde Spielen Draußen Im Schnee."
    assert only("lost_punctuation") == Pair(PAIR.source[:-1], PAIR.target[:-1])
    one_mark = Pair("A dog", "Ein Hund.")
    assert only("lost_punctuation", one_mark) == one_mark


@pytest.mark.parametrize("seed", range(20))
def test_typos_and_repeated_marks_are_in_the_source_alone(seed):
    repeated = only("repeated_punctuation", seed=seed)
    assert repeated.source in [PAIR.source + marks for marks in (".", "..", "...")]
    assert repeated.target == PAIR.target
    mistyped = only("typos", seed=seed)
    assert mistyped.target == PAIR.target
    before, after = PAIR.source.split(" "), mistyped.source.split(" ")
    changed = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
    assert len(changed) <= 1
    assert all(one[0] == other[0] and abs(len(one) - len(other)) <= 1 for one, other in changed)


def test_most_texts_with_typos_differ_and_short_words_have_none():
    found = [with_typos(PAIR.source, random.Random(seed)) for seed in range(200)]
    assert sum(text != PAIR.source for text in found) > 180  # a letter may replace itself
    assert with_typos("A dog is in it.", random.Random(1)) == "A dog is in it."


def test_copies_are_the_same_on_both_sides_and_of_every_kind():
    found = [only("copies", seed=seed) for seed in range(60)]
    added = [pair.source.removeprefix(PAIR.source).strip() for pair in found]
    assert all(pair.target == f"{PAIR.target} {more}" for pair, more in zip(found, added, strict=True))
    kinds = {"emoji" if more in EMOJI else "number" if more.strip("()").isdigit() else "name" for more in added}
    assert kinds == {"emoji", "number", "name"}


@pytest.mark.parametrize("kind", NoiseConfig.kinds)
@pytest.mark.parametrize("example", [Pair("A line.", " "), Pair("", "Eine."), Pair("", ""), LabelledText(" ", "1")])
def test_noise_makes_no_example_of_a_blank_side(example, kind):
    """The filter of empty examples comes later."""
    assert only(kind, example) == example
    tagged = Pair("<back> ", "Eine.")
    assert perturbed(tagged, NoiseConfig(**{kind: 1.0}), random.Random(1), tag="<back>") == tagged


def test_a_labelled_text_keeps_its_label():
    assert only("upper", LabelledText("so good", "1")) == LabelledText("SO GOOD", "1")


def write(folder, count=2000):
    (folder / "a.en").write_text("".join(f"the small sentence number {i} .\n" for i in range(count)))
    (folder / "a.de").write_text("".join(f"der kleine Satz Nummer {i} .\n" for i in range(count)))
    return {"source": folder / "a.en", "target": folder / "a.de"}


def test_a_source_has_the_shares_that_were_asked_for_line_by_line(tmp_path):
    files = write(tmp_path)
    plain = list(open_pairs(SourceConfig(**files), "en", "de"))
    config = SourceConfig(**files, noise=NoiseConfig(upper=0.2, copies=0.1))
    noisy = open_pairs(config, "en", "de")
    found = list(noisy)
    assert [pair.source.lower()[:20] for pair in found] == [pair.source[:20] for pair in plain]
    assert sum(pair.source.isupper() for pair in found) == pytest.approx(400, abs=60)
    assert sum(not pair.source.endswith(".") for pair in found) == pytest.approx(200, abs=45)
    assert list(noisy) == found
    assert list(open_pairs(config, "en", "de")) == found
    other = SourceConfig(**files, noise=NoiseConfig(upper=0.2, copies=0.1, seed=2))
    assert list(open_pairs(other, "en", "de")) != found


def test_a_chunk_goes_to_another_process_and_gives_the_same(tmp_path):
    config = SourceConfig(**write(tmp_path), noise=NoiseConfig(typos=0.5))
    for chunk in open_pairs(config, "en", "de").chunks():
        assert pickle.loads(pickle.dumps(chunk)).examples() == chunk.examples()


def test_noise_is_part_of_the_identity_and_of_the_prepared_corpus(tmp_path):
    files = write(tmp_path, 50)
    texts = (tmp_path / "a.en").read_text().splitlines()
    tokenizer = Tokenizer.train(texts, TokenizerConfig(vocab_size=310), seed=1)
    tokenizers = TokenizerPair(tokenizer, tokenizer)
    sources = [open_pairs(SourceConfig(**files, noise=noise), "en", "de") for noise in (None, NoiseConfig(upper=1.0))]
    assert len({source.fingerprint for source in sources}) == 2
    corpora = [prepare_corpus([source], tokenizers, None, tmp_path / "cache", 1, None) for source in sources]
    plain, noisy = ([tokenizer.decode(row) for row in corpus.ids("source", [3])] for corpus in corpora)
    assert noisy == [plain[0].upper()]


def test_labelled_sources_take_noise(tmp_path):
    (tmp_path / "a.tsv").write_text("sentence\tlabel\nso good\t1\n")
    assert list(open_labelled(SourceConfig(tsv=tmp_path / "a.tsv", noise=NoiseConfig(upper=1.0)))) == [
        LabelledText("SO GOOD", "1")
    ]


def test_an_unknown_kind_is_one_line(tmp_path):
    from seq2seq.config.file import load

    write(tmp_path)
    (tmp_path / "c.yaml").write_text(
        "source_language: en\ntarget_language: de\n"
        "data:\n  train: {source: a.en, target: a.de, noise: {caps: 0.1}}\n  valid: {source: a.en, target: a.de}\n"
    )
    with pytest.raises(UserError, match=r"data\.train\.noise\.caps: unknown key"):
        load(tmp_path / "c.yaml")


@pytest.mark.parametrize("seed", range(20))
def test_typos_move_letters_with_their_marks(seed):
    text = "विद्यार्थियों हिन्दी लिखते हैं और छात्राएँ देवनागरी"
    found = with_typos(text, random.Random(seed))
    assert not regex.search(r"(?:^|[^\w])\p{M}", found)
    assert {*graphemes(found)} <= {*graphemes(text)}


def test_capitals_are_those_of_the_languages(tmp_path):
    pair = Pair("istanbul ışık", "καλή μέρα")
    noise = NoiseConfig(upper=1.0)
    assert perturbed(pair, noise, random.Random(1), ("tr", "el")) == Pair("İSTANBUL IŞIK", "ΚΑΛΗ ΜΕΡΑ")
    assert perturbed(pair, noise, random.Random(1)) == Pair("ISTANBUL IŞIK", "ΚΑΛΉ ΜΈΡΑ")
    titled = perturbed(Pair("ijs en", "istanbul"), NoiseConfig(title=1.0), random.Random(1), ("nl", "tr"))
    assert titled == Pair("IJs En", "İstanbul")
    for side in ("a", "b"):
        (tmp_path / side).write_text("istanbul\n", encoding="utf-8")
    config = SourceConfig(source=tmp_path / "a", target=tmp_path / "b", noise=noise)
    plain, german, turkish = (
        open_pairs(config, *names).fingerprint for names in (("en", "fr"), ("de", "en"), ("tr", "en"))
    )
    assert plain == german != turkish
