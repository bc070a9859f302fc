"""Scores: counted by hand where a hand can, laws that hold for any input, and every wrong use in words."""

import json
import math
import statistics
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.errors import DataError, UserError
from seq2seq.evaluation.classification import classification_report
from seq2seq.evaluation.text import (
    compare_systems,
    default_tokenizer,
    form_hint,
    resampled,
    score_sentences,
    score_texts,
)
from seq2seq.evaluation.uncertainty import of_macro_scores
from seq2seq.languages import language_code

REFERENCES = ["The cat sat on the mat .", "It is raining today, is it not?", "Nobody came.", "Über den Wolken"]
HYPOTHESES = ["The cat sat on a mat .", "It is raining, isn't it?", "Nobody came.", "Über die Wolken"]


def scores_of(*arguments, **options):
    return {score.metric: score for score in score_texts(*arguments, **options)}


# -- text ------------------------------------------------------------------------------------------


def test_a_perfect_translation_has_the_best_score_there_is():
    scores = scores_of(REFERENCES, REFERENCES, metrics=("ter", "bleu", "chrf"))
    assert list(scores) == ["bleu", "chrf", "ter"]  # sacrebleu's order, whatever was asked
    assert math.isclose(scores["bleu"].score, 100)
    assert math.isclose(scores["chrf"].score, 100)
    assert scores["ter"].score == 0


def test_bleu_by_hand():
    # hypothesis a b c d e, reference a b c d f: 4/5 unigrams, 3/4 bigrams, 2/3 trigrams, 1/2 4-grams, equal lengths
    expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    score = scores_of(["a b c d e"], ["a b c d f"], metrics=["bleu"])["bleu"]
    assert math.isclose(score.score, expected, rel_tol=1e-12)
    assert f"= {expected:.1f} 80.0/75.0/66.7/50.0 (BP = 1.000" in score.format()
    assert score.format().startswith(f"BLEU|{score.signature} = ")


def test_ter_by_hand():
    # one substitution and one insertion against three words
    assert math.isclose(scores_of(["a x c d"], ["a b c"], metrics=["ter"])["ter"].score, 100 * 2 / 3)


def test_width_is_the_number_of_decimals():
    score = scores_of(HYPOTHESES, REFERENCES, metrics=["bleu"])["bleu"]
    assert f"= {score.score:.4f} " in score.format(width=4)
    assert json.loads(score.format(width=4, is_json=True))["score"] == round(score.score, 4)


def test_white_space_at_line_ends_does_not_count():
    plain = scores_of(HYPOTHESES, REFERENCES)
    padded = scores_of([f"{line} \t\u3000" for line in HYPOTHESES], [f"{line}  " for line in REFERENCES])
    assert {name: score.score for name, score in plain.items()} == {name: s.score for name, s in padded.items()}


def test_confidence_brackets_the_score_and_marks_the_signature():
    plain = scores_of(HYPOTHESES * 20, REFERENCES * 20)
    sure = scores_of(HYPOTHESES * 20, REFERENCES * 20, confidence=True)
    for name, score in sure.items():
        assert score.score == plain[name].score
        record = json.loads(score.format(width=6, is_json=True))
        assert abs(record["confidence_mean"] - score.score) < record["confidence_var"] < 20
        assert "bs:1000" in score.signature
        assert "confidence" not in plain[name].format(is_json=True)


@pytest.mark.parametrize("metric", ["bleu", "chrf", "chrf++", "ter"])
@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [(["a b c d"] * 3, ["a b c d", "a b c", "x"]), (["a b", "c"], ["a b", ""]), (["a", "b"], ["c", "d"])],
    ids=["some lines are wrong", "an empty reference", "all lines are wrong"],
)
def test_resamples_without_a_match_count_in_the_interval(metric, hypotheses, references):
    (score,) = score_texts(hypotheses, references, metric, confidence=True)
    record = json.loads(score.format(width=4, is_json=True))
    ((drawn,),) = resampled([[score]])
    found = record.get("confidence_mean", 0), record.get("confidence_var", 0)  # sacrebleu leaves out zeros
    for value, expected in zip(found, (drawn.mean, drawn.half_width), strict=True):
        assert math.isclose(value, expected, rel_tol=1e-3, abs_tol=1e-3)


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_texts_and_references_may_be_any_collection_in_order(kind):
    others = [["The cat sat on a mat .", "It rains", "Nobody came .", "Over clouds"], REFERENCES]

    def given(count=1):
        return {
            "references": kind(REFERENCES),
            "metrics": kind(["bleu", "chrf"]),
            "other_references": kind([kind(lines) for lines in others[:count]]),
        }

    systems = {"one": HYPOTHESES, "two": others[0]}
    plain = {"metrics": ["bleu", "chrf"], "references": REFERENCES, "other_references": others[:1]}
    compared = compare_systems({name: kind(lines) for name, lines in systems.items()}, **given())
    assert repr(compared) == repr(compare_systems(systems, **plain))
    one, other = score_texts(kind(HYPOTHESES), **given()), score_texts(HYPOTHESES, **plain)
    assert [(score.score, score.signature) for score in one] == [(score.score, score.signature) for score in other]
    assert score_sentences(kind(HYPOTHESES), **given()) == score_sentences(HYPOTHESES, **plain)
    assert "nrefs:3" in score_texts(kind(HYPOTHESES), **given(2))[0].signature


@pytest.mark.parametrize("wrong", [{}, [], [HYPOTHESES], None])
def test_a_comparison_needs_systems_by_name_and_metrics(wrong):
    with pytest.raises(UserError, match="name at least one system"):
        compare_systems(wrong, REFERENCES)
    for score in (lambda: compare_systems({"a": HYPOTHESES}, REFERENCES, []), lambda: score_texts(["a"], ["a"], [])):
        with pytest.raises(UserError, match="metrics: none is named"):
            score()


@pytest.mark.parametrize(
    ("hypotheses", "references", "said"),
    [
        (["a"], ["a", "b"], "1 translation for 2 references"),
        ([], ["a"], "0 translations for 1 reference;"),
        (["a", "b", "c"], ["a"], "3 translations for 1 reference;"),
    ],
)
def test_different_numbers_of_lines_are_named(hypotheses, references, said):
    with pytest.raises(DataError, match=said):
        score_texts(hypotheses, references)


def test_nothing_to_score_is_an_error():
    with pytest.raises(DataError, match="no lines"):
        score_texts([], [])


def test_unknown_metrics_and_tokenizers_get_a_suggestion():
    with pytest.raises(UserError, match="did you mean 'chrf'"):
        score_texts(["a"], ["a"], metrics=["chrff"])
    with pytest.raises(UserError, match="did you mean 'intl'"):
        score_texts(["a"], ["a"], tokenize="intll")


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"),
        (None, "13a"),
        ("zh", "zh"),
        ("zh-Hant", "zh"),
        ("zh_CN", "zh"),
        ("EN", "13a"),
        ("zho_Hans", "zh"),
        ("cmn", "zh"),
        ("yue", "zh"),
        ("chi", "zh"),
        ("ger", "13a"),
        ("tlh", "13a"),
        ("", "13a"),
    ],
)
def test_the_tokenizer_follows_the_target_language(language, tokenizer):
    assert default_tokenizer(language) == tokenizer
    score = scores_of(["今日は雨だ", "b"], ["今日は雪だ", "b"], metrics=["bleu"], target_language=language)["bleu"]
    assert f"tok:{tokenizer}" in score.signature


@pytest.mark.parametrize("language", ["ja", "ko"])
def test_japanese_and_korean_are_never_counted_in_unbroken_sentences(language, caplog):
    # with the word tokenizer where it is installed, else over characters, and then it is said
    score = scores_of(["今日は雨だ"] * 2, ["今日は雪だ"] * 2, metrics=["bleu"], target_language=language)["bleu"]
    assert score.score > 0
    if f"tok:{language}-mecab" not in score.signature:
        assert "tok:char" in score.signature
        with pytest.raises(UserError, match=rf"sacrebleu\[{language}\]"):
            score_texts(["a"], ["a"], ["bleu"], tokenize=f"{language}-mecab")


def test_a_system_compared_with_itself_does_not_differ():
    results, _ = compare_systems({"a": HYPOTHESES, "b": HYPOTHESES}, REFERENCES)
    for first, second in results.values():
        assert first.p_value is None
        assert second.p_value == 1.0
        assert (first.score, first.mean, first.ci) == (second.score, second.mean, second.ci)


def test_a_clearly_worse_system_differs_and_the_plain_scores_stay():
    good, bad = REFERENCES * 25, ["Something else altogether here"] * 100
    results, signatures = compare_systems({"good": good, "bad": bad}, REFERENCES * 25, metrics=("bleu", "chrf", "ter"))
    plain = score_texts(bad, REFERENCES * 25, metrics=("bleu", "chrf", "ter"))
    assert list(results) == ["BLEU", "chrF2", "TER"]
    for score in plain:
        result = results[score.result.name][1]
        assert math.isclose(result.score, score.score)
        assert result.p_value < 0.05
        assert "bs:1000" in signatures[score.result.name]


def test_a_system_with_missing_lines_is_named():
    with pytest.raises(DataError, match=r"short\.txt has 1 translation for 4"):
        compare_systems({"long.txt": HYPOTHESES, "short.txt": ["a"]}, REFERENCES)


# -- classification --------------------------------------------------------------------------------


def test_figures_by_hand():
    gold = ["pos"] * 5 + ["neg"] * 3 + ["odd"] * 2
    predicted = ["pos", "pos", "pos", "neg", "odd", "neg", "neg", "pos", "odd", "pos"]
    report = classification_report(gold, predicted, ["neg", "pos", "odd"])
    assert report.labels == ("neg", "pos", "odd")
    assert report.confusion == ((2, 1, 0), (1, 3, 1), (0, 1, 1))
    assert report.total == 10
    assert report.accuracy == 6 / 10
    neg, pos, odd = (report.classes[label] for label in report.labels)
    assert (neg.precision, neg.recall, neg.support) == (2 / 3, 2 / 3, 3)
    assert (pos.precision, pos.recall, pos.support) == (3 / 5, 3 / 5, 5)
    assert (odd.precision, odd.recall, odd.support) == (1 / 2, 1 / 2, 2)
    assert math.isclose(report.f1, (2 / 3 + 3 / 5 + 1 / 2) / 3)


def test_precision_and_recall_are_not_swapped():
    report = classification_report(["a", "a", "a", "b"], ["a", "b", "b", "b"])
    assert (report.classes["a"].precision, report.classes["a"].recall) == (1.0, 1 / 3)
    assert (report.classes["b"].precision, report.classes["b"].recall) == (1 / 3, 1.0)
    assert report.classes["a"].f1 == report.classes["b"].f1 == 0.5


def test_a_class_that_is_never_given_has_zeros_and_one_that_does_not_occur_is_not_averaged():
    report = classification_report(["a", "b"], ["a", "a"], ["a", "b", "unused"])
    assert vars(report.classes["b"]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
    assert math.isclose(report.f1, (2 / 3 + 0) / 2)
    assert report.confusion[2] == (0, 0, 0)


LABELS = st.sampled_from("abcd")


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_laws_of_any_report(pairs):
    gold, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    report = classification_report(gold, predicted)
    turned = classification_report(predicted, gold)
    assert report.total == len(pairs)
    assert report.accuracy == turned.accuracy == sum(g == p for g, p in pairs) / len(pairs)
    for label, scores in report.classes.items():
        other = turned.classes[label]
        assert (scores.precision, scores.recall) == (other.recall, other.precision)
        assert math.isclose(scores.f1, other.f1)
        assert min(scores.precision, scores.recall) <= scores.f1 + 1e-12
        assert scores.support == gold.count(label)
    weighted_recall = sum(scores.recall * scores.support for scores in report.classes.values()) / len(pairs)
    assert math.isclose(weighted_recall, report.accuracy, abs_tol=1e-12)


@given(st.lists(st.tuples(LABELS, st.sampled_from(["a", "b", ""])), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_a_text_without_an_answer_is_a_miss_and_no_class(pairs):
    """Its class has the recall that another wrong answer gives it; the means are over the other classes."""
    gold, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    report = classification_report(gold, predicted)
    other = classification_report(gold, [label or "elsewhere" for label in predicted])
    assert report.accuracy == other.accuracy
    assert report.total == len(pairs)
    assert "" not in report.classes
    assert report.classes == {label: scores for label, scores in other.classes.items() if label != "elsewhere"}
    for name in ("precision", "recall", "f1"):
        mean = statistics.fmean(getattr(scores, name) for scores in report.classes.values())
        assert math.isclose(getattr(report, name), mean)
        assert math.isclose(of_macro_scores(gold, predicted)[name].value, mean)


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=40))
@settings(max_examples=50, deadline=None)
def test_scikit_learn_agrees(pairs):
    metrics = pytest.importorskip("sklearn.metrics")
    gold, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    report = classification_report(gold, predicted)
    precision, recall, f1, _ = metrics.precision_recall_fscore_support(
        gold, predicted, average="macro", zero_division=0
    )
    assert math.isclose(report.precision, precision)
    assert math.isclose(report.recall, recall)
    assert math.isclose(report.f1, f1)
    assert [list(row) for row in report.confusion] == metrics.confusion_matrix(gold, predicted).tolist()


@pytest.mark.parametrize(("gold", "predicted"), [(["a"], []), ([], []), (["a"], ["a", "b"])])
def test_nothing_or_unequal_is_an_error(gold, predicted):
    with pytest.raises(DataError):
        classification_report(gold, predicted)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (("ja", "jpn", "JA", "jpn_Jpan", "ja-JP", "ja_JP.UTF-8"), "ja"),
        (("ko", "kor", "kor_Hang", "ko-KR"), "ko"),
        (("zh", "zho", "chi", "cmn", "yue", "cmn_Hans", "zho_Hant", "zh-TW", "lzh"), "zh"),
        (("pt", "por", "pt-BR", "pt_br", "por_Latn"), "pt"),
        (("de", "deu", "ger", "de_AT"), "de"),
        (("nb", "nob"), "nb"),
        (("tlh", "TLH", "tlh_Piqd"), "tlh"),
        ((None, "", " "), ""),
    ],
)
def test_a_language_has_one_code_however_it_is_named(names, code):
    assert {language_code(name) for name in names} == {code}


def test_language_codes_are_those_of_the_standard():
    """Oracle: transformers' own tables of NLLB and mBART name languages by ISO 639-3, and those of M2M100 by 639-1."""
    from transformers.models.m2m_100 import tokenization_m2m_100
    from transformers.models.nllb import tokenization_nllb

    two = {name for name in tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"] if len(name) == 2}
    known = {language_code(name) for name in tokenization_nllb.FAIRSEQ_LANGUAGE_CODES}
    assert len(two) > 80
    assert two - known <= {"br", "fy", "ff", "ns", "no"}
    assert all(language_code(name) == name for name in two)


@pytest.mark.parametrize(
    "change",
    [
        lambda word: unicodedata.normalize("NFD", word),
        lambda word: f"{word[:2]}\xad{word[2:]}",
        lambda word: f"\u200b{word}",
    ],
)
def test_words_that_only_look_equal_are_a_hint(change):
    texts = ["der Müller läuft", "und die Bäckerin sieht zu"]
    odd = ["der Müller läuft", " ".join(map(change, texts[1].split()))]
    for sides in ((texts, odd), (odd, texts)):
        assert "encoded differently" in form_hint(*sides)
    for sides in ((texts, texts), (odd, odd), (["der Hund"], texts), ([texts[0].replace(" ", "\xa0")], texts)):
        assert form_hint(*sides) is None
