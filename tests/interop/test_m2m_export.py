"""Models as M2M-100 folders: transformers gives the same logits and text, and what comes back is the model."""

import json
import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from support.foreign_models import SOURCE, TARGET
from support.multilingual_models import make_multilingual
from support.our_models import make_ours
from support.vocabulary_models import hypotheses

from seq2seq.cli import main
from seq2seq.config.schema import TokenizerConfig
from seq2seq.data.collate import collate_translation
from seq2seq.errors import ModelError
from seq2seq.files import read_object
from seq2seq.inference.scorer import Scorer
from seq2seq.interop.marian_settings import OWN_SEARCH
from seq2seq.store.model_folder import load_model, save_model
from seq2seq.text.direction import Direction
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.workflows.convert import export_m2m

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

PAIR = ("en", "de")
SIZES = dict(d_model=32, encoder_ffn_dim=64, decoder_ffn_dim=64, noise=0.0, steps=100, dropout=0.0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """An M2M-100 folder of transformers with a licence, the same trimmed to two languages and extended, and exports."""
    folder = tmp_path_factory.mktemp("m2m")
    make_multilingual(folder / "theirs", "m2m100", attention_dropout=0.0, **SIZES)
    (folder / "theirs" / "README.md").write_text("---\nlicense: mit\n---\n")
    for name, lines in (("en", SOURCE), ("de", TARGET), ("new", [*SOURCE, "ねこ いぬ"])):
        (folder / name).write_text("\n".join(lines) + "\n")
    typed = ["--corpus", str(folder / "en"), "--corpus", str(folder / "de"), "--languages", "en,de"]
    assert main(["vocabulary", "trim", str(folder / "theirs"), *typed, "-o", str(folder / "trimmed")]) == 0
    extend = ["vocabulary", "extend", str(folder / "trimmed"), "--corpus", str(folder / "new")]
    assert main([*extend, "-o", str(folder / "changed")]) == 0
    for name in ("theirs", "changed"):
        assert main(["convert", str(folder / name), "--to", "m2m100", "-o", str(folder / f"from-{name}")]) == 0
    return folder


def test_languages_are_written_under_the_names_of_their_tags(folders, tmp_path):
    """This holds for a model of an earlier version too, which stores the names of a configuration."""
    ours = load_model(folders / "theirs")
    named = {"source_language": "English", "target_language": "ger"}
    save_model(tmp_path / "ours", ours.weights, ours.description.model_copy(update=named), ours.tokenizers)
    export_m2m(tmp_path / "ours", tmp_path / "exported")
    config = json.loads((tmp_path / "exported" / "tokenizer_config.json").read_text())
    assert (config["src_lang"], config["tgt_lang"]) == PAIR
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    forced = json.loads((tmp_path / "exported" / "generation_config.json").read_text())["forced_bos_token_id"]
    assert forced == theirs.get_lang_id("de")
    assert ModelCard.load(tmp_path / "exported" / "README.md").data.language == list(PAIR)


def test_a_minimum_length_comes_back_from_the_settings_of_transformers(folders, tmp_path):
    """Its number counts the start and the tag."""
    ours = load_model(folders / "theirs")
    for length, written in ((7, 9), (0, 0)):
        search = ours.description.search.model_copy(update={"min_length": length})
        description = ours.description.model_copy(update={"search": search})
        save_model(tmp_path / f"ours{length}", ours.weights, description, ours.tokenizers)
        export_m2m(tmp_path / f"ours{length}", exported := tmp_path / f"exported{length}")
        stored = exported / "generation_config.json"
        values = json.loads(stored.read_text())
        assert (values["min_length"], load_model(exported).description.search) == (written, search)
        stored.write_text(json.dumps({key: value for key, value in values.items() if key != OWN_SEARCH}))
        assert load_model(exported).description.search.min_length == length
        # exports of earlier versions
        stored.write_text(json.dumps({**values, "min_length": length + 1 if length else 0}))
        assert load_model(exported).description.search == search


def test_pieces_for_bytes_are_exported(folders, tmp_path):
    """A tokenizer of ours spells unknown characters with them."""
    trained = Tokenizer.train([*SOURCE, *TARGET] * 5, TokenizerConfig(vocab_size=380), 1)
    (tmp_path / "own.spm").write_bytes(trained.model_bytes)
    new, exported = str(tmp_path / "new"), str(tmp_path / "exported")
    assert main(["vocabulary", "transplant", str(folders / "theirs"), str(tmp_path / "own.spm"), "-o", new]) == 0
    assert main(["convert", new, "--to", "m2m100", "-o", exported]) == 0
    pairs = [load_model(folder).tokenizers.directed(Direction(*PAIR)) for folder in (new, exported)]
    pieces = [pair.source.pieces(pair.source.read("the ねこ")) for pair in pairs]
    assert pieces[0] == pieces[1]
    assert sum(piece.startswith("<0x") for piece in pieces[0]) == len("ねこ".encode())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["theirs", "changed"])
def test_transformers_gives_the_same_logits_and_texts(folders, name):
    ours = load_model(folders / name).directed(Direction(*PAIR))
    exported = folders / f"from-{name}"
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    tokenizer.src_lang, tokenizer.tgt_lang = PAIR
    pair = ours.tokenizers
    batch = collate_translation(
        pair.source.encode_all(SOURCE), pair.target.encode_all(TARGET), pair, range(len(SOURCE))
    )
    written = tokenizer(SOURCE, text_target=TARGET, return_tensors="pt", padding=True)
    start = torch.full((len(SOURCE), 1), tokenizer.eos_token_id)
    inputs = torch.cat([start, written["labels"]], 1)[:, :-1]
    with torch.no_grad():
        own = ours.model.project(ours.model(batch.source_ids, batch.source_mask, batch.target_input))
        logits = theirs(written["input_ids"], written["attention_mask"], decoder_input_ids=inputs).logits
    pieces = [piece for piece in pair.target.text_pieces() if piece in tokenizer.get_vocab()]
    rows = [pair.target.vocabulary[piece] for piece in pieces], [tokenizer.get_vocab()[piece] for piece in pieces]
    assert len(pieces) > 20
    width = batch.target_mask.size(1)
    differences = (own[..., rows[0]] - logits[:, :width][..., rows[1]])[batch.target_mask].abs()
    assert differences.max() < 1e-5 * max(1.0, float(logits.abs().max()))
    tag = tokenizer.get_lang_id(PAIR[1])
    made = theirs.generate(
        **tokenizer(SOURCE, return_tensors="pt", padding=True), num_beams=1, forced_bos_token_id=tag, max_length=40
    )
    texts = [" ".join(text.split()) for text in tokenizer.batch_decode(made, skip_special_tokens=True)]
    assert texts == hypotheses(ours, SOURCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["theirs", "changed"])
def test_what_comes_back_is_the_model(folders, name):
    ours, back = (load_model(folders / folder) for folder in (name, f"from-{name}"))
    state, again = (loaded.model.state_dict() for loaded in (ours, back))
    ids, others = (loaded.tokenizers.source.vocabulary for loaded in (ours, back))
    if name == "theirs":
        assert ids == others
        assert back.tokenizers.fingerprint == ours.tokenizers.fingerprint
    pieces = [*ours.tokenizers.source.text_pieces(), *ours.tokenizers.source.tags.values(), "</s>", "<unk>"]
    rows = [ids[piece] for piece in pieces], [others[piece] for piece in pieces]
    for key, tensor in state.items():
        if "tokens" in key or key.startswith("output"):
            assert torch.equal(tensor[rows[0]], again[key][rows[1]]), key
        else:
            assert torch.equal(tensor, again[key]), key
    assert back.description.license == "mit"
    assert back.description.search == ours.description.search
    assert back.description.model == ours.description.model
    assert "license: mit" in (folders / f"from-{name}" / "README.md").read_text()
    for line in [*SOURCE, "ねこ"]:
        sides = [loaded.directed(Direction(*PAIR)).tokenizers.source for loaded in (ours, back)]
        assert sides[0].pieces(sides[0].encode(line)) == sides[1].pieces(sides[1].encode(line))
    assert read_object(folders / f"from-{name}" / "config.json")["model_type"] == "m2m_100"


def test_a_trimmed_model_comes_back_with_its_own_languages_and_probabilities(folders, capsys):
    """Rows that transformers needs for other languages of its list are not languages of the model."""
    ours, back = (load_model(folders / folder) for folder in ("changed", "from-changed"))
    assert back.tokenizers.source.tags == ours.tokenizers.source.tags
    assert back.tokenizers.source.vocab_size == ours.tokenizers.source.vocab_size
    written = read_object(folders / "from-changed" / "config.json")
    assert set(written["absent_languages"]) == {"ja", "zh", "cs", "ru", "is", "ha"}
    scored = [
        Scorer.load(folders / name, source_language="en", target_language="de").score(
            list(zip(SOURCE, TARGET, strict=True))
        )
        for name in ("changed", "from-changed")
    ]
    assert [one.log_prob for one in scored[0]] == pytest.approx([one.log_prob for one in scored[1]], abs=1e-4)
    for name in ("changed", "from-changed"):
        capsys.readouterr()
        assert main(["translate", str(folders / name), "--from", "en", "--to", "ja", "-i", str(folders / "en")]) == 2
        assert "ja" in capsys.readouterr().err
    card = ModelCard.load(folders / "from-changed" / "README.md")
    assert set(card.data.language) == {"en", "de"}
    assert f"{', '.join(written['absent_languages'])}, which the model lacks" in card.content


@pytest.mark.parametrize("value", [["qq"], "de", [["en"]], ["en", "de", "ja", "zh", "cs", "ru", "is", "ha"], [1]])
def test_absent_languages_that_make_no_sense_are_refused(folders, tmp_path, value):
    shutil.copytree(folders / "from-changed", tmp_path / "wrong")
    config = read_object(tmp_path / "wrong" / "config.json")
    (tmp_path / "wrong" / "config.json").write_text(json.dumps({**config, "absent_languages": value}))
    with pytest.raises(ModelError, match=r"absent_languages: .* is not a list of some of the languages"):
        load_model(tmp_path / "wrong")


def test_what_it_cannot_hold_is_one_line(tmp_path, capsys):
    make_ours(tmp_path / "ours")
    make_multilingual(tmp_path / "nllb", "nllb")
    make_multilingual(tmp_path / "mbart", "mbart50")
    make_multilingual(tmp_path / "m2m", "m2m100")
    (tmp_path / "text").write_text("the cat\n")
    typed = ["--corpus", str(tmp_path / "text"), "--pieces", "0", "--tag", "qqq", "--like", "de"]
    assert main(["vocabulary", "extend", str(tmp_path / "m2m"), *typed, "-o", str(tmp_path / "tagged")]) == 0
    for name, said in (
        ("ours", "a tokenizer without the language tags of M2M-100"),
        ("nllb", "which needs a tokenizer.json that is not written"),
        ("mbart", "embedding_norm True (M2M-100: False)"),
        ("tagged", "languages that M2M100Tokenizer of transformers does not have: qqq"),
    ):
        capsys.readouterr()
        assert main(["convert", str(tmp_path / name), "--to", "m2m100", "-o", str(tmp_path / "new")]) == 2
        assert said in capsys.readouterr().err
        assert not (tmp_path / "new").exists()
