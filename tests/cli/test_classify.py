"""Classification of lines: the batch does not matter, nothing is dropped, and one line answers each line."""

import json
import math
import random
import re

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.forked import Piped

from seq2seq import lines as text_lines
from seq2seq.cli import main
from seq2seq.config.description import ModelDescription
from seq2seq.config.schema import Config
from seq2seq.data.collate import collate_classification
from seq2seq.errors import ModelError
from seq2seq.evaluation.classification import classification_report
from seq2seq.inference.classifier import NO_TEXT, Classifier
from seq2seq.inference.groups import equal_parts, token_groups
from seq2seq.model.classifier import EncoderClassifier
from seq2seq.model.transformer import Transformer
from seq2seq.store.model_folder import load_model, save_model
from seq2seq.text.tokenizer import Tokenizer, TokenizerPair

WORDS = ["the", "a", "good", "bad", "film", "story", "was", "is", "not", "very", "slow", "funny", "dull", "long", "and"]


def sentences(count, seed=0, longest=18):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


def config(task, **sections):
    languages = {"source_language": "en", "target_language": "de"} if task == "translation" else {}
    data = {"train": {"hub": "x"}, "valid": {"hub": "x"}, "label_names": {"0": "negative", "1": "positive"}}
    model = {"d_model": 16, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 2, "max_length": 32}
    return Config.model_validate({"task": task, "data": data, "model": model, **languages, **sections})


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(sentences(300), config("classification", tokenizer={"vocab_size": 320}).tokenizer, seed=1)


@pytest.fixture(scope="module", params=["first", "mean", pytest.param("mean_max", marks=pytest.mark.slow)])
def folder(request, tokenizer, tmp_path_factory):
    torch.manual_seed(3)
    chosen = config("classification", classifier={"pooling": request.param})
    model = EncoderClassifier(chosen.model, chosen.classifier, tokenizer.vocab_size, 3)
    torch.nn.init.normal_(model.output.weight, std=9.0)
    batch = collate_classification(tokenizer.encode_all(sentences(60)), [0] * 60, tokenizer, range(60))
    with torch.inference_mode():
        mean = model.eval()(batch.source_ids, batch.source_mask).mean(0)
    model.output.bias.data -= mean  # so that no label stands above the others, and the texts differ
    path = tmp_path_factory.mktemp("model") / "model"
    pair = TokenizerPair(tokenizer, tokenizer)
    return save_model(path, model.state_dict(), ModelDescription.of(chosen, ("0", "1", "odd")), pair)


@pytest.fixture(scope="module")
def classifier(folder):
    return Classifier.load(folder, device="cpu")


def same(answers, others):
    assert [answer.label for answer in answers] == [other.label for other in others]
    for answer, other in zip(answers, others, strict=True):
        assert answer.probabilities.keys() == other.probabilities.keys()
        for label, probability in answer.probabilities.items():
            assert math.isclose(probability, other.probabilities[label], abs_tol=1e-5)


def test_probabilities_are_the_models_own(folder, classifier, tokenizer):
    text = "the film was not very good"
    ids = torch.tensor([[tokenizer.bos_id, *tokenizer.encode(text), tokenizer.eos_id]])
    with torch.inference_mode():
        logits = load_model(folder).model(ids, torch.ones_like(ids, dtype=torch.bool))[0]
    answer = classifier.classify([text])[0]
    expected = dict(zip(("negative", "positive", "odd"), logits.softmax(-1).tolist(), strict=True))
    assert answer.probabilities == pytest.approx(expected, abs=1e-6)
    assert answer.label == max(expected, key=expected.__getitem__)
    assert answer.probability == answer.probabilities[answer.label]
    assert math.isclose(sum(answer.probabilities.values()), 1.0, abs_tol=1e-6)


def test_the_texts_of_this_file_get_different_labels(classifier):
    # or the laws below would hold for a model that answers always the same
    assert len({answer.label for answer in classifier.classify(sentences(60))}) > 1


@pytest.mark.parametrize("batch_tokens", [1, 40, 100_000])
def test_the_batch_does_not_matter(folder, classifier, batch_tokens):
    texts = sentences(40)
    alone = [classifier.classify([text])[0] for text in texts]
    same(Classifier.load(folder, device="cpu", batch_tokens=batch_tokens).classify(texts), alone)
    shuffled = list(range(40))
    random.Random(1).shuffle(shuffled)
    answers = classifier.classify([texts[index] for index in shuffled])
    same([answers[shuffled.index(index)] for index in range(40)], alone)


@pytest.mark.parametrize("blank", ["", " ", "\t\u3000 ", "\u2028"])
def test_a_blank_line_never_reaches_the_model(classifier, blank, monkeypatch):
    texts = ["a good film", blank, "a bad film"]
    answers = classifier.classify(texts)
    assert answers[1] == NO_TEXT
    same(answers[::2], classifier.classify(texts[::2]))
    monkeypatch.setattr(classifier._members[0], "_model", None)
    assert classifier.classify([blank]) == [NO_TEXT]
    assert classifier.classify([]) == []


def test_spaces_at_the_ends_of_a_line_do_not_matter(classifier):
    same(classifier.classify([" a good film ", "a bad film\u00a0"]), classifier.classify(["a good film", "a bad film"]))


def test_nothing_of_a_long_line_is_dropped(classifier, tokenizer):
    long = " ".join(sentences(12))
    ids = tokenizer.encode(long)
    parts = equal_parts(ids, -(-len(ids) // 30))  # 32 positions, two of them for the special ids
    assert len(parts) > 3
    answer = classifier.classify([long])[0]
    assert math.isclose(sum(answer.probabilities.values()), 1.0, abs_tol=1e-6)
    whole = classifier._members[0]._of_parts(parts)
    weights = torch.tensor([len(part) for part in parts], dtype=torch.float64)
    expected = (whole * weights[:, None]).sum(0) / weights.sum()
    assert list(answer.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-6)


@given(st.integers(0, 500), st.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_equal_parts_lose_nothing_and_differ_by_one_at_most(length, count):
    ids = list(range(length))
    parts = equal_parts(ids, count)
    assert [piece for part in parts for piece in part] == ids
    assert len(parts) == count
    sizes = [len(part) for part in parts]
    assert max(sizes) == -(-length // count)
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(2, 50), max_size=60), st.integers(1, 200))
@settings(max_examples=100, deadline=None)
def test_batches_hold_every_index_once_within_the_budget(lengths, budget):
    batches = list(token_groups(lengths, budget))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= budget


def test_a_translation_model_is_refused(tokenizer, tmp_path, capsys):
    settings = config("translation")
    model = Transformer(settings.model, tokenizer.vocab_size, tokenizer.vocab_size)
    pair = TokenizerPair(tokenizer, tokenizer)
    save_model(tmp_path / "model", model.state_dict(), ModelDescription.of(settings), pair)
    with pytest.raises(ModelError, match="translation"):
        Classifier.load(tmp_path / "model")
    assert main(["classify", str(tmp_path / "model"), "-i", __file__]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_device_that_is_not_there_is_one_line(folder, capsys):
    assert main(["classify", str(folder), "-i", __file__, "--device", "tpu"]) == 2
    assert "'tpu'" in capsys.readouterr().err


# -- s2s classify ----------------------------------------------------------------------------------


@pytest.fixture
def run(folder, tmp_path, capsys):
    def run(content, *options):
        path = tmp_path / "input"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        code = main(["classify", str(folder), "-i", str(path), "--device", "cpu", *map(str, options)])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return captured.out, captured.err

    return run


def test_text_is_label_tab_probability_a_line(run, classifier):
    texts = [*sentences(5), "", *sentences(5, seed=1)]
    out, _ = run("\n".join(texts))
    answers = classifier.classify(texts)
    assert out.split("\n") == [f"{a.label}\t{a.probability:.4f}" if a.label else "" for a in answers] + [""]


def test_jsonl_has_all_classes(run, classifier):
    texts = ["a good film", " ", "Größe \u2028 🙂"]
    out, _ = run("\n".join(texts), "--format", "jsonl")
    records = [json.loads(line) for line in out.rstrip("\n").split("\n")]
    assert [record["text"] for record in records] == texts
    assert [record["label"] for record in records] == [answer.label for answer in classifier.classify(texts)]
    labels = ["negative", "positive", "odd"]
    assert [list(record["probabilities"]) for record in records] == [labels, [], labels]


ODD_LINES = st.sampled_from(["", " ", "\r", "a\u2028b", "\x00", "\x0c"])


@given(st.lists(st.one_of(st.text(max_size=30), st.binary(max_size=30), ODD_LINES), max_size=8))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_as_many_lines_out_as_in(run, lines):
    raw = [line.encode("utf-8", errors="replace") if isinstance(line, str) else line for line in lines]
    content = b"\n".join(raw) + b"\n"
    if content.startswith(b"\x1f\x8b") or text_lines._problem(content):
        return  # packed, a spreadsheet, or in another encoding, or so it seems
    for form in ("text", "jsonl"):
        out, _ = run(content, "--format", form)
        assert out.count("\n") == content.count(b"\n")


def test_invalid_utf8_is_warned_about_with_its_line(run):
    _, err = run(b"good\n\xff\xfe\n")
    assert "line 2" in err
    assert len(err.splitlines()) == 1


def test_answers_go_to_a_file(run, tmp_path):
    out, _ = run("a good film\n", "-o", tmp_path / "answers")
    assert out == ""
    assert (tmp_path / "answers").read_bytes().count(b"\n") == 1


def test_gold_scores_instead(folder, classifier, tmp_path, capsys):
    texts = sentences(30)
    texts[4] = ""  # no answer, and no class of its own
    raw_labels = random.Random(0).choices(["0", "1", "odd"], k=30)
    gold = tmp_path / "gold.tsv"
    rows = [f"{text}\t{label}" for text, label in zip(texts, raw_labels, strict=True)]
    gold.write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    assert main(["classify", str(folder), "--gold", str(gold), "--format", "json", "--device", "cpu"]) == 0
    report = json.loads(capsys.readouterr().out)
    names = {"0": "negative", "1": "positive"}
    labels = [names.get(label, label) for label in raw_labels]
    expected = classification_report(labels, [answer.label for answer in classifier.classify(texts)], classifier.labels)
    assert report == json.loads(json.dumps(expected.as_dict()))
    assert main(["classify", str(folder), "--gold", str(gold), "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert f"accuracy {100 * expected.accuracy:.2f} %" in text
    assert "negative" in text
    assert "(none)" in text
    names_of_rows = {line.split()[0] for line in text.splitlines() if line.strip()}
    assert names_of_rows <= {"accuracy", "precision", "macro", "gold", *expected.classes}


def test_a_gold_label_that_the_model_does_not_have_is_named(folder, tmp_path, capsys):
    gold = tmp_path / "gold.tsv"
    gold.write_text("sentence\tlabel\na good film\t1\na bad one\t7\n")
    assert main(["classify", str(folder), "--gold", str(gold)]) == 2
    error = capsys.readouterr().err
    assert "'7'" in error
    assert "'a bad one'" in error
    assert str(gold) in error


def test_gold_may_be_jsonl_and_needs_texts(folder, tmp_path, capsys):
    rows = [("a good film", "1"), ("a bad one", "0"), ("odd", "1")]
    (tmp_path / "gold.tsv").write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    (tmp_path / "gold.jsonl").write_text(
        "".join(f'{{"sentence": "{text}", "label": "{label}"}}\n' for text, label in rows)
    )
    found = []
    for name in ("gold.tsv", "gold.jsonl"):
        assert main(["classify", str(folder), "--gold", str(tmp_path / name), "--device", "cpu"]) == 0
        found.append(capsys.readouterr().out)
    assert found[0] == found[1]
    (tmp_path / "none.tsv").write_text("sentence\tlabel\n")
    assert main(["classify", str(folder), "--gold", str(tmp_path / "none.tsv"), "--device", "cpu"]) == 2
    assert "none.tsv: no texts with labels; there is nothing to score" in capsys.readouterr().err


@pytest.mark.slow
def test_a_pipe_is_answered_line_by_line(folder):
    process = Piped("classify", str(folder), "--device", "cpu")
    for line in (b"a good film\n", b"\n", b"a dull story\n"):
        process.stdin.write(line)
        process.stdin.flush()
        answer = process.stdout.readline()  # the pipe stays open: this would hang if the answer waited for more
        assert (answer == b"\n") == (line == b"\n")
    process.stdin.close()
    assert process.wait(30) == 0
    process.end()


# -- s2s info, s2s average -------------------------------------------------------------------------


def test_info_says_what_the_model_is(folder, tokenizer, capsys):
    assert main(["info", str(folder), "--format", "json"]) == 0
    info = json.loads(capsys.readouterr().out)
    model = load_model(folder).model
    assert info["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert info["labels"] == ["negative", "positive", "odd"]
    assert info["vocabulary"] == {"source": tokenizer.vocab_size}
    assert main(["info", str(folder)]) == 0
    text = capsys.readouterr().out
    assert f"{info['parameters']:,}" in text
    assert "to classify" in text
    assert not re.search("translate|int8", text)
    assert "2 layers" in text


def shifted(folder, target, offset, weights=None, tokenizers=None, **change):
    loaded = load_model(folder)
    state = {name: tensor + offset for name, tensor in loaded.model.state_dict().items()}
    description = loaded.description.model_copy(update=change)
    return save_model(target, weights or state, description, tokenizers or loaded.tokenizers)


def test_the_average_of_a_model_and_its_mirror_is_in_the_middle(folder, tmp_path, capsys):
    one, other = (shifted(folder, tmp_path / name, offset) for name, offset in (("up", 0.25), ("down", -0.25)))
    assert main(["average", str(one), str(other), "-o", str(tmp_path / "mean")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mean'}\n"
    expected, mean = load_model(folder), load_model(tmp_path / "mean")
    for name, tensor in mean.model.state_dict().items():
        torch.testing.assert_close(tensor, expected.model.state_dict()[name], atol=1e-6, rtol=0)
    assert mean.description.labels == expected.description.labels
    assert mean.description.label_names == expected.description.label_names
    assert mean.tokenizers.fingerprint == expected.tokenizers.fingerprint


def test_the_average_of_one_model_with_itself_answers_as_it_does(folder, classifier, tmp_path):
    assert main(["average", str(folder), str(folder), "-o", str(tmp_path / "mean")]) == 0
    same(Classifier.load(tmp_path / "mean", device="cpu").classify(sentences(9)), classifier.classify(sentences(9)))


def test_what_cannot_be_averaged_is_one_line(folder, tokenizer, tmp_path, capsys):
    wider = config("classification", model={"d_model": 32, "num_heads": 2, "d_ff": 32, "num_encoder_layers": 2})
    shape = EncoderClassifier(wider.model, wider.classifier, tokenizer.vocab_size, 3)
    other_words = Tokenizer.train(
        ["x y z " * 9] * 30, config("classification", tokenizer={"vocab_size": 280}).tokenizer, 1
    )
    words_model = EncoderClassifier(config("classification").model, wider.classifier, other_words.vocab_size, 3)
    cases = {
        "shape": shifted(folder, tmp_path / "shape", 0, shape.state_dict(), model=wider.model),
        "labels": shifted(folder, tmp_path / "labels", 0, labels=("a", "b", "c")),
        "vocabulary": shifted(
            folder, tmp_path / "vocabulary", 0, words_model.state_dict(), TokenizerPair(other_words, other_words)
        ),
    }  # fmt: skip
    capsys.readouterr()
    for word, path in cases.items():
        assert main(["average", str(folder), str(path), "-o", str(tmp_path / "mean")]) == 2
        error = capsys.readouterr().err
        assert len(error.splitlines()) == 1
        assert word in error
        assert str(path) in error
    assert not (tmp_path / "mean").exists()
    assert main(["average", str(folder), "-o", str(cases["shape"])]) == 2  # it exists
    assert "exists" in capsys.readouterr().err
