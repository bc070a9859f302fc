"""Models of many languages on the command line and in Python: languages are named once, and bad names are refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.foreign_models import LANGUAGES, SOURCE, TARGET, make_marian
from support.multilingual_models import make_multilingual
from support.our_models import make_many, make_ours

from seq2seq.cli import main
from seq2seq.errors import ModelError, UserError
from seq2seq.inference.overlap import finish
from seq2seq.inference.pipeline import Pipeline
from seq2seq.inference.pivot import through_pivot
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.store.model_folder import load_foreign, load_model, save_model
from seq2seq.text.direction import Direction

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


@pytest.fixture
def nllb(trained_nllb) -> Path:
    return trained_nllb


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_languages_are_named_in_any_way(nllb):
    texts = []
    for source, target in (("en", "de"), ("English", "deu"), ("eng_Latn", "deu_latn")):
        translator = Translator.load(nllb, engine="torch", source_language=source, target_language=target)
        texts.append([one.text for one in translator.translate(SOURCE)])
    assert texts[0] == texts[1] == texts[2]
    other = Translator.load(nllb, engine="torch", source_language="en", target_language="fr")
    assert [one.text for one in other.translate(SOURCE)] != texts[0]  # the tag is read


@pytest.mark.parametrize(
    ("languages", "words"),
    [
        ((None, None), ("--from and --to", "deu_Latn")),
        (("en", None), ("--from and --to",)),
        (("en", "germn"), ("--to germn", "did you mean 'german'", "deu_Latn")),
        (("en", "zh"), ("--to zh", "zho_Hans, zho_Hant")),
    ],
)
def test_a_language_that_is_missing_or_unknown_is_refused_with_the_list(nllb, languages, words):
    named = dict(zip(("source_language", "target_language"), languages, strict=True))
    for load in (Translator.load, Scorer.load):
        with pytest.raises(UserError) as refused:
            load(nllb, **named)
        assert all(word in str(refused.value) for word in words)


def test_a_line_in_parts_has_the_tag_in_every_part(nllb):
    translator = Translator.load(nllb, engine="torch", source_language="en", target_language="de", beam_size=1)
    long = translator.translate([" ".join(f"{line}." for line in SOURCE[:4] * 4)])[0]
    assert "split" in long.flags
    alone = translator.translate([long.source[slice(*part.source)] for part in long.parts])
    assert len(alone) > 1
    assert [long.text[slice(*part.target)] for part in long.parts] == [one.text for one in alone]


def test_a_score_is_that_of_the_search(nllb):
    """The tag is no part of the number of tokens either."""
    named = dict(source_language="en", target_language="de")
    found = Translator.load(nllb, engine="torch", beam_size=1, **named).translate(SOURCE)
    scored = Scorer.load(nllb, **named).score([(line, one.text) for line, one in zip(SOURCE, found, strict=True)])
    same = [
        (one.log_prob, score.log_prob) for one, score in zip(found, scored, strict=True) if one.tokens == score.tokens
    ]
    assert len(same) > len(SOURCE) / 2
    assert [one for one, _ in same] == pytest.approx([score for _, score in same], abs=1e-3)


def test_commands_take_and_list_the_languages(nllb, tmp_path, capfd):
    lines = tmp_path / "lines"
    lines.write_text("\n".join(SOURCE) + "\n")
    (tmp_path / "gold").write_text("\n".join(TARGET) + "\n")
    assert main(["translate", str(nllb), "-i", str(lines), "--from", "en", "--to", "de"]) == 0
    texts = capfd.readouterr().out.splitlines()
    assert len(texts) == len(SOURCE)
    scored = ["--source", str(lines), "--reference", str(tmp_path / "gold"), "-o", str(tmp_path / "out")]
    assert main(["bleu", "--model", str(nllb), *scored, "--from", "en", "--to", "de"]) == 0
    assert (tmp_path / "out").read_text().splitlines() == texts
    capfd.readouterr()
    assert main(["score", str(nllb), str(lines), str(tmp_path / "out"), "--from", "en", "--to", "de"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == len(SOURCE)
    assert main(["info", str(nllb), "--format", "json"]) == 0
    assert {"deu_Latn", "zho_Hans"} <= set(json.loads(capfd.readouterr().out)["languages"])
    assert main(["info", str(nllb)]) == 0
    assert "?" not in capfd.readouterr().out, "its languages are a row of their own"
    assert main(["translate", str(nllb), "-i", str(lines)]) == 2


@pytest.mark.slow
def test_the_settings_of_a_tuned_model_are_those_of_all_its_directions(nllb, tmp_path, capfd):
    """The direction that they were found in is named; a folder of transformers has no place for them."""
    (tmp_path / "lines").write_text("\n".join(SOURCE[:8]) + "\n")
    (tmp_path / "gold").write_text("\n".join(TARGET[:8]) + "\n")
    languages = ["--from", "en", "--to", "de"]
    pair = ["--source", str(tmp_path / "lines"), "--reference", str(tmp_path / "gold")]
    assert main(["tune", str(nllb), *pair, *languages]) == 2
    assert "--from m2m100 or nllb" in capfd.readouterr().err
    ours = tmp_path / "ours"
    assert main(["convert", str(nllb), "--from", "nllb", "-o", str(ours)]) == 0
    capfd.readouterr()
    assert main(["tune", str(ours), *pair, *languages, "--format", "json", "--engine", "torch"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["directions"] == ["eng_Latn-deu_Latn"]
    for target in ("de", "fr"):
        search = Translator.load(ours, engine="torch", source_language="en", target_language=target).config
        assert (search.beam_size, search.length_penalty) == (found["beam_size"], found["length_penalty"])


def test_the_licence_goes_with_the_model(nllb, tmp_path, capfd):
    assert main(["convert", str(nllb), "--from", "nllb", "-o", str(tmp_path / "ours")]) == 0
    assert "cc-by-nc-4.0; non-commercial use only" in capfd.readouterr().err
    assert "license: cc-by-nc-4.0" in (tmp_path / "ours" / "README.md").read_text()
    assert load_model(tmp_path / "ours").description.license == "cc-by-nc-4.0"
    assert main(["convert", str(tmp_path / "ours"), "--to", "ctranslate2", "-o", str(tmp_path / "ct2"), "--force"]) == 0
    assert json.loads((tmp_path / "ct2" / "seq2seq.json").read_text())["license"] == "cc-by-nc-4.0"


def test_a_package_of_argos_cannot_hold_it(nllb, tmp_path, capfd):
    languages = ["--source-language", "en", "--target-language", "de"]
    assert main(["convert", str(nllb), "--to", "argos", "-o", str(tmp_path / "x.argosmodel"), *languages]) == 2
    assert "no tags of languages" in capfd.readouterr().err
    assert not (tmp_path / "x.argosmodel").exists()


def test_a_translation_in_another_language_is_flagged(nllb, tmp_path, capfd):
    """By both engines and in all forms; the text is that of a prefix, which the model has to begin with."""
    german = "die Katze saß auf der Matte"
    (tmp_path / "line").write_text(SOURCE[0] + "\n")
    (tmp_path / "begin").write_text(german + "\n")
    typed = ["translate", str(nllb), "-i", str(tmp_path / "line"), "--prefix-file", str(tmp_path / "begin")]
    for engine, to, is_other in (("torch", "fr", True), ("ctranslate2", "fr", True), ("torch", "de", False)):
        assert main([*typed, "--from", "en", "--to", to, "--engine", engine, "--format", "jsonl"]) == 0
        out, err = capfd.readouterr()
        assert json.loads(out)["text"].startswith(german)
        assert ("language" in json.loads(out)["flags"]) == is_other
        assert ("into another language than the target" in err) == is_other
    translator = Translator.load(nllb, engine="torch", source_language="en", target_language="fr")
    assert translator.flags([(SOURCE[0], german), ("1 2 3", german), ("the cat", "le chat")]) == [
        ("language",), ("language",), (),
    ]  # fmt: skip
    assert all("language" not in one.flags for one in translator.translate(["", "12:30", "https://example.org/a/b/c"]))


def test_a_pivot_is_two_passes(nllb, tmp_path, capfd):
    """Line for line, over one model, by both engines; copied and blank lines have no flag."""
    (tmp_path / "lines").write_text("\n".join([*SOURCE, "12:30", ""]) + "\n")
    languages = {"source_language": "fr", "target_language": "de"}
    for engine in ("torch", "ctranslate2"):
        pipeline = Pipeline.load(nllb, engine=engine, pivot="en", **languages)
        first = Translator.load(nllb, engine=engine, source_language="fr", target_language="en").translate(SOURCE)
        second = Translator.load(nllb, engine=engine, source_language="en", target_language="de")
        answers = pipeline.translate([*SOURCE, "12:30", ""])
        passed = second.translate([one.text for one in first])
        assert [one.text for one in answers] == [*(one.text for one in passed), "12:30", ""]
        assert any(one.text for one in passed)
        assert [one.source for one in answers] == [*SOURCE, "12:30", ""]
        assert ["pivot" in one.flags for one in answers] == [True] * len(SOURCE) + [False, False]
        typed = ["translate", str(nllb), "-i", str(tmp_path / "lines"), "--from", "fr", "--to", "de", "--pivot", "en"]
        assert main([*typed, "--engine", engine]) == 0
        out, err = capfd.readouterr()
        assert out.split("\n")[:-1] == [one.text for one in answers]
        assert f"{len(SOURCE)} lines were translated through" in err


def test_a_prefix_stays_if_the_first_pass_says_nothing(nllb, tmp_path):
    loaded = make_ours(tmp_path / "silent", ending=1.0)
    loaded.model.output.bias.data[loaded.tokenizers.target.vocabulary["\u2581"]] = 1e4  # spaces alone
    engine = TorchEngine(TransformerSteps(loaded.model, loaded.tokenizers, torch.device("cpu")))
    silent = Translator(engine, loaded.tokenizers, loaded.description.search, repair=False)
    assert silent.translate([SOURCE[0]])[0].text.isspace()
    second = Translator.load(nllb, engine="torch", source_language="en", target_language="de")
    answers = finish(through_pivot(silent, second, [SOURCE[0], "", SOURCE[1]], ["die ", "die ", ""]))
    assert [one.text for one in answers] == ["die", "", ""]
    assert answers[0].parts[0].target == (0, 3)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["fra"], "the same language as --to"),
        (["English"], "the same language as --from"),
        (["germn"], "--pivot germn: not a language of the model; did you mean 'german'"),
        (["de", "--input-format", "html"], "leave out --pivot"),
        (["de", "--format", "jsonl", "--details", "words"], "leave out --pivot"),
    ],
)
def test_an_impossible_pivot_is_refused(nllb, tmp_path, more, words, capfd):
    (tmp_path / "line").write_text("the cat\n")
    typed = ["translate", str(nllb), "-i", str(tmp_path / "line"), "--from", "en", "--to", "fr"]
    assert main([*typed, "--pivot", *more]) == 2
    assert words in capfd.readouterr().err


def test_a_model_of_one_direction_has_no_pivot(tmp_path):
    make_marian(tmp_path / "marian")
    with pytest.raises(UserError, match="needs a model of many source and target languages"):
        Pipeline.load(tmp_path / "marian", pivot="fr")


def test_the_off_target_rate_is_the_share_of_flagged_lines(nllb, tmp_path, capfd):
    (tmp_path / "lines").write_text("\n".join(SOURCE) + "\n")
    (tmp_path / "gold").write_text("\n".join(TARGET) + "\n")
    scored = ["--source", str(tmp_path / "lines"), "--reference", str(tmp_path / "gold"), "-f", "json"]
    for to in ("de", "ja"):
        assert main(["bleu", "--model", str(nllb), *scored, "--from", "en", "--to", to]) == 0
        out, err = capfd.readouterr()
        translator = Translator.load(nllb, source_language="en", target_language=to)
        count = sum("language" in one.flags for one in translator.translate(SOURCE))
        assert json.loads(out)[0]["off_target"] == {"lines": count, "rate": count / len(SOURCE)}
        assert f"{count} lines ({count / len(SOURCE):.1%}) are in another language than the target" in err
        assert (count == 0) == (to == "de")


def test_a_typed_tag_of_another_language_is_reported_once(tmp_path, caplog):
    make_marian(tmp_path / "opus", languages=LANGUAGES)
    german = Translator.load(tmp_path / "opus", engine="torch", target_language="de", beam_size=1)
    german.translate([">>deu<< the cat", "the cat"])
    assert "begins with" not in caplog.text
    german.translate([f">>nld<< {line}" for line in SOURCE])
    german.translate([">>nld<< the cat"])
    Translator.load(tmp_path / "opus", engine="torch", beam_size=1).translate([">>nld<< the cat"])
    (message,) = [record.getMessage() for record in caplog.records if "begins with" in record.getMessage()]
    assert ">>nld<<" in message
    assert "not deu" in message


def test_opus_models_of_several_targets(tmp_path):
    """`--to X` is the tag that a user types; a text with a tag of its own keeps it."""
    make_marian(tmp_path / "opus", languages=LANGUAGES)
    plain, german = (Translator.load(tmp_path / "opus", engine="torch", target_language=to) for to in (None, "de"))
    typed = [one.text for one in plain.translate([f">>deu<< {line}" for line in SOURCE])]
    assert [one.text for one in german.translate(SOURCE)] == typed
    dutch = [f">>nld<< {line}" for line in SOURCE]
    assert [one.text for one in german.translate(dutch)] == [one.text for one in plain.translate(dutch)]
    with pytest.raises(UserError, match="deu, nld"):
        Translator.load(tmp_path / "opus", target_language="fr")


def test_a_model_of_one_direction_takes_no_other(tmp_path):
    make_marian(tmp_path / "marian")
    Translator.load(tmp_path / "marian", source_language="English", target_language="de")
    with pytest.raises(UserError, match="has de alone"):
        Translator.load(tmp_path / "marian", target_language="fr")


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("config.json", {"tie_word_embeddings": False}, "tie_word_embeddings"),
        ("config.json", {"normalize_before": False}, "normalize_before"),
        ("config.json", {"activation_function": "tanh"}, "activation_function"),
        ("config.json", {"decoder_start_token_id": 0}, "decoder_start_token_id"),
        ("config.json", {"vocab_size": 7}, "vocab_size"),
        ("generation_config.json", {"forced_bos_token_id": 5}, "forced_bos_token_id"),
        ("generation_config.json", {"repetition_penalty": 2.0}, "repetition_penalty"),
        ("tokenizer_config.json", {"tokenizer_class": "SMALL100Tokenizer"}, "SMALL100Tokenizer"),
    ],
)
def test_settings_that_change_the_computation_are_refused_by_name(file, change, words, tmp_path):
    make_multilingual(tmp_path, "m2m100")
    path = tmp_path / file
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=words):
        load_model(tmp_path)


def _cut_languages(folder, kept) -> None:
    """Leave the first languages of an M2M-100 folder, as a trimmed model has them."""
    weights, config = load_file(folder / "model.safetensors"), json.loads((folder / "config.json").read_text())
    size = len(json.loads((folder / "vocab.json").read_text())) + kept
    weights["model.shared.weight"] = weights["model.shared.weight"][:size].clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": size}))


@pytest.mark.parametrize(
    ("kept", "codes", "words"),
    [
        (2, None, "with the 100 usual languages, because the folder lists none; copy tokenizer.json, or a"),
        (100, "flores101", "language_codes: 'flores101' is none of m2m100, wmt21; copy tokenizer.json, or a"),
        (100, ["af", "am"], 'language_codes: ["af", "am"] is none of m2m100, wmt21; copy tokenizer.json'),
    ],
    ids=["trimmed", "unknown list", "no name of a list"],
)
def test_languages_that_nothing_names_are_refused_with_the_remedy_which_helps(kept, codes, words, tmp_path, capfd):
    """An M2M-100 folder without a list of languages, whose weights have others than its tokenizer, or may have."""
    folder = tmp_path / "m2m"
    _, tokenizer = make_multilingual(folder, "m2m100")
    _cut_languages(folder, kept)
    named = {"tokenizer_class": "M2M100Tokenizer"} | ({} if codes is None else {"language_codes": codes})
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    (tmp_path / "line").write_text("the cat\n")
    typed = ["translate", str(folder), "-i", str(tmp_path / "line"), "--from", "am", "--to", "af", "--engine", "torch"]
    capfd.readouterr()
    assert main(typed) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err
    ids = list(tokenizer.lang_token_to_id.items())[:kept]
    listed = {"added_tokens_decoder": {id_: {"content": piece} for piece, id_ in ids}}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | listed))
    assert main(typed) == 0
    assert capfd.readouterr().out.count("\n") == 1


def test_an_m2m100_folder_needs_the_file_that_numbers_its_pieces(tmp_path):
    make_multilingual(tmp_path, "m2m100")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "M2M100Tokenizer"}')
    (tmp_path / "vocab.json").unlink()
    with pytest.raises(ModelError, match=r"vocab\.json is missing; copy it from the original model"):
        load_model(tmp_path)


def test_a_model_that_is_stored_for_one_direction_has_it(tmp_path):
    make_multilingual(tmp_path / "nllb", "nllb")
    loaded = load_model(tmp_path / "nllb").directed(Direction("en", "de"))
    save_model(tmp_path / "one", loaded.weights, loaded.description, loaded.tokenizers)
    texts = [
        Translator.load(tmp_path / "one", all_languages=every).translate(["the cat"])[0].text for every in (True, False)
    ]
    assert texts[0] == texts[1]


def test_a_model_with_tags_before_sources_needs_the_target_alone(tmp_path):
    make_many(tmp_path, ["en", "fr"], ["de", "es"], "source")
    assert len(Translator.load(tmp_path, target_language="de").translate(["the cat"])) == 1
    whole = Translator.load(tmp_path, all_languages=True)
    with pytest.raises(UserError, match="needs languages"):
        whole.translate(["the cat"])
    assert len(whole.directed(Direction(target="de")).translate(["the cat"])) == 1


def test_a_pickle_is_read_only_on_request(tmp_path):
    theirs, _ = make_multilingual(tmp_path, "mbart50")
    expected = load_model(tmp_path).model.state_dict()
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"--from mbart .*--pickle"):
        load_model(tmp_path)
    found = load_foreign(tmp_path, torch_file=True).model.state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


LOADING = """
import sys
from seq2seq.store.model_folder import load_model
load_model(sys.argv[2])
def high():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024
before = high()
load_model(sys.argv[1])
print(high() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_loading_takes_the_memory_of_the_weights_once(tmp_path):
    """At most 1.2 times the weights, beyond what a small model takes."""
    make_multilingual(tmp_path / "small", "m2m100")
    make_multilingual(tmp_path / "large", "m2m100", d_model=512, encoder_ffn_dim=2048, decoder_ffn_dim=2048, noise=0.0)
    weights = (tmp_path / "large" / "model.safetensors").stat().st_size
    assert weights > 50 * 2**20
    loaded = load_model(tmp_path / "large")
    save_model(tmp_path / "ours", loaded.model.state_dict(keep_vars=True), loaded.description, loaded.tokenizers)
    for name in ("large", "ours"):
        paths = [str(tmp_path / name), str(tmp_path / "small")]
        run = subprocess.run([sys.executable, "-c", LOADING, *paths], capture_output=True, text=True, check=True)
        assert int(run.stdout) < 1.2 * weights
