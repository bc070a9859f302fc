"""What a Marian folder says of searching, beyond beams: OPUS-MT's renormalised probabilities, and every refusal."""

import json

import pytest
import torch
from support.foreign_models import SOURCE, TARGET, make_marian
from support.our_models import make_ours

from seq2seq.config.schema import SearchConfig
from seq2seq.data.collate import collate_translation
from seq2seq.errors import ModelError
from seq2seq.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq.inference.scorer import Scorer
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.interop.ctranslate2_export import write_ctranslate2
from seq2seq.interop.marian_settings import DEFAULTS, NEUTRAL, ONLY
from seq2seq.runtime import start
from seq2seq.search.base import Sentence
from seq2seq.store.model_folder import load_model
from seq2seq.workflows.convert import export_marian, import_foreign

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def edit(folder, name="config.json", **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture(scope="module")
def renormalizing(tmp_path_factory):
    """A model that likes padding best, as OPUS-MT's do, in a folder that asks for it to be left out."""
    folder = tmp_path_factory.mktemp("opus") / "marian"
    theirs = make_marian(folder, noise=0.25)
    with torch.no_grad():
        theirs.final_logits_bias[0, -1] = 8.0
    theirs.generation_config.renormalize_logits = True
    theirs.save_pretrained(folder)
    return folder, theirs, load_model(folder)


def torch_engine(model):
    return TorchEngine(TransformerSteps(model.model, model.tokenizers, torch.device("cpu")))


def within(limit, **options):
    """A search whose translations have at most `limit` pieces, however long the source."""
    return SearchConfig(max_length_ratio=1e-6, max_length_offset=limit, early_stopping=True, **options)


@pytest.mark.parametrize(
    ("theirs_options", "ours_options"),
    [
        (dict(num_beams=4, early_stopping=True), dict(beam_size=4)),
        (dict(num_beams=4, early_stopping=True, min_length=5), dict(beam_size=4, min_length=4)),
        (dict(num_beams=3, early_stopping=True, no_repeat_ngram_size=2), dict(beam_size=3, no_repeat_ngram=2)),
    ],
    ids=["plain", "min_length", "no_repeat_ngram"],
)
def test_what_may_not_come_out_counts_for_nothing_as_in_transformers(renormalizing, theirs_options, ours_options):
    _, theirs, ours = renormalizing
    assert ours.description.search.renormalize
    source = ours.tokenizers.source
    rows = [[*ids, source.eos_id] for ids in source.encode_all(SOURCE)]
    width = max(map(len, rows))
    done = theirs.generate(
        input_ids=torch.tensor([row + [source.pad_id] * (width - len(row)) for row in rows]),
        attention_mask=torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows]),
        max_length=31, output_scores=True, return_dict_in_generate=True, **theirs_options,
    )  # fmt: skip
    config = within(30, renormalize=True, **ours_options)
    sentences = [Sentence(ids) for ids in source.encode_all(SOURCE)]
    found = torch_engine(ours).translate(sentences, config)
    plain = torch_engine(ours).translate(sentences, config.model_copy(update={"renormalize": False}))
    compared = 0
    for mine, other, row, score in zip(
        found, plain, done.sequences[:, 1:].tolist(), done.sequences_scores.tolist(), strict=True
    ):
        if 0 in row[:29] and mine[0].finished:  # at the limit the two differ by design
            compared += 1
            assert list(mine[0].ids) == row[: row.index(0)]
            assert mine[0].score == pytest.approx(score, abs=1e-4)
            assert other[0].score < mine[0].score - 0.5, "with padding in the sum, little is left for words"
    assert compared


def test_given_translations_are_scored_without_padding_too(renormalizing):
    folder, _, ours = renormalizing
    found = Scorer(load_model(folder), start("cpu", None)).score(list(zip(SOURCE, TARGET, strict=True)))
    source, target = ours.tokenizers.source.encode_all(SOURCE), ours.tokenizers.target.encode_all(TARGET)
    batch = collate_translation(source, target, ours.tokenizers, range(len(SOURCE)))
    with torch.no_grad():
        hidden = ours.model(batch.source_ids, batch.source_mask, batch.target_input)
        words = ours.model.project(hidden)[..., :-1]  # padding is the last id
    log_probs = words.log_softmax(-1).gather(2, batch.target_output.clamp(max=words.shape[2] - 1)[..., None])[..., 0]
    expected = log_probs.masked_fill(~batch.target_mask, 0.0).sum(1)
    assert [one.log_prob for one in found] == pytest.approx(expected.tolist(), abs=1e-3)


def test_ctranslate2_leaves_padding_out_as_well(renormalizing, tmp_path):
    _, _, ours = renormalizing
    write_ctranslate2(tmp_path, ours.model, ours.description, ours.tokenizers, "float32")
    engine = CTranslate2Engine(tmp_path, ours.tokenizers, 64)
    config = ours.description.search.model_copy(update={"early_stopping": True})
    sentences = [Sentence(ids) for ids in ours.tokenizers.source.encode_all(SOURCE)]
    for one, other in zip(
        engine.translate(sentences, config), torch_engine(ours).translate(sentences, config), strict=True
    ):
        assert one[0].ids == other[0].ids
        assert one[0].log_prob == pytest.approx(other[0].log_prob, abs=1e-3)


def test_the_wish_stays_with_the_model(renormalizing, tmp_path):
    folder, _, ours = renormalizing
    assert load_model(import_foreign(folder, tmp_path / "ours")).description.search == ours.description.search
    exported = export_marian(folder, tmp_path / "again")
    assert json.loads((exported / "generation_config.json").read_text())["renormalize_logits"] is True
    assert load_model(exported).description.search == ours.description.search
    make_ours(tmp_path / "other")
    assert not load_model(tmp_path / "other").description.search.renormalize


def test_where_everything_is_forbidden_nothing_comes_out(tmp_path):
    ours = make_ours(tmp_path / "ours", ending=4.0)
    steps = TransformerSteps(ours.model, ours.tokenizers, torch.device("cpu"))
    steps.suppressed = tuple(range(ours.tokenizers.target.vocab_size))
    for renormalize in (False, True):
        config = SearchConfig(beam_size=2, renormalize=renormalize)
        (found,) = TorchEngine(steps).translate([Sentence(ours.tokenizers.source.encode(SOURCE[0]))], config)
        assert found[0].log_prob == -torch.inf


def test_the_settings_of_public_models_are_read(tmp_path):
    """What config.json and generation_config.json of OPUS-MT models on the hub hold, old keys included."""
    make_marian(tmp_path, activation_function="swish")
    size = json.loads((tmp_path / "config.json").read_text())["vocab_size"]
    edit(
        tmp_path, _num_labels=3, add_bias_logits=False, add_final_layer_norm=False, bad_words_ids=[[size - 1]],
        bos_token_id=0, classif_dropout=0.0, classifier_dropout=0.0, extra_pos_embeddings=size, init_std=0.02,
        gradient_checkpointing=False, max_length=512, normalize_before=False, normalize_embedding=False, num_beams=6,
        num_hidden_layers=2, static_position_embeddings=True, torch_dtype="float16", use_cache=True,
        id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0},
    )  # fmt: skip
    (tmp_path / "generation_config.json").write_text(json.dumps({
        "_from_model_config": True, "bad_words_ids": [[size - 1]], "bos_token_id": 0, "eos_token_id": 0,
        "decoder_start_token_id": size - 1, "forced_eos_token_id": 0, "max_length": 512, "num_beams": 6,
        "pad_token_id": size - 1, "renormalize_logits": True, "transformers_version": "4.32.0",
    }))  # fmt: skip
    assert load_model(tmp_path).description.search == SearchConfig(beam_size=6, renormalize=True)
    (tmp_path / "generation_config.json").unlink()
    assert load_model(tmp_path).description.search == SearchConfig(beam_size=6), (
        "older folders say it all in config.json"
    )


def test_however_many_settings_are_unsupported_each_is_named(tmp_path):
    make_marian(tmp_path)
    wrong = {key: not value if isinstance(value, bool) else 0.1 for key, value in ONLY.items()}
    edit(tmp_path, **wrong, activation_function="tanh")
    odd = {key: True if value is False or value is None else value + 1 for key, value in NEUTRAL.items()}
    edit(tmp_path, "generation_config.json", **odd, bad_words_ids=[[3, 4]])
    with pytest.raises(ModelError) as caught:
        load_model(tmp_path)
    for key in (*wrong, "activation_function", *odd, "bad_words_ids"):
        assert f"{key}: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_everything_that_a_marian_config_holds_is_known():
    """A key that a later version of transformers adds has to be looked at."""
    plain = transformers.PretrainedConfig().to_dict()
    of_no_effect = {"init_std", "use_cache", "num_hidden_layers", "bos_token_id", "forced_bos_token_id"}
    known = {*DEFAULTS, *ONLY, *NEUTRAL, *of_no_effect, "decoder_vocab_size", "model_type"}
    assert set(transformers.MarianConfig().to_dict()) - set(plain) - known == set()


@pytest.mark.parametrize("verb", ["translate", "score", "bleu", "info"])
def test_a_marian_folder_is_taken_where_a_model_is(verb, renormalizing, tmp_path, capsys, monkeypatch):
    from seq2seq.cli import main

    monkeypatch.chdir(tmp_path)
    for name, lines in (("in.en", SOURCE), ("in.de", TARGET)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    folder = str(renormalizing[0])
    arguments = {
        "translate": [folder, "-i", "in.en"],
        "score": [folder, "in.en", "in.de"],
        "bleu": ["--model", folder, "--source", "in.en", "--reference", "in.de"],
        "info": [folder],
    }
    assert main([verb, *arguments[verb]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SOURCE) if verb in ("translate", "score") else lines
