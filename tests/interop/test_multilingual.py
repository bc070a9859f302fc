"""M2M-100, NLLB and mBART: the numbers, the pieces and the texts of transformers, with both engines."""

import json
import random
import shutil

import pytest
import torch
from sentencepiece import SentencePieceProcessor
from support.foreign_models import SOURCE, TARGET
from support.multilingual_models import FAMILIES, PAIRS, drawn_architecture, make_multilingual

from seq2seq.config.schema import SearchConfig
from seq2seq.data.collate import collate_translation
from seq2seq.errors import UserError
from seq2seq.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.interop.ctranslate2_export import write_ctranslate2
from seq2seq.search.base import Sentence
from seq2seq.store.model_folder import load_model, save_model
from seq2seq.text.direction import Direction, find_language
from seq2seq.training.loss import translation_loss

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

SIZES = dict(d_model=32, encoder_ffn_dim=64, decoder_ffn_dim=64)
TRAINED = dict(noise=0.0, steps=100, dropout=0.0, attention_dropout=0.0, **SIZES)
ODD = [
    "", " double  space ", "Ünïcödé 日本 😀", "a\u00a0b\u200b", "▁ meta", "ﬁne ① Ｗｉｄｅ", "tab\tand",
    "ÅÅ e\u0301 \u0915\u094d", "x" * 90, "!!! ... ???", "日本語のテキスト", "die Straße", "\u2028 line", "1,234.5 €",
]  # fmt: skip


SLOW = ("m2m100", "mbart25")


@pytest.fixture(
    scope="module",
    params=[pytest.param(family, marks=pytest.mark.slow if family in SLOW else ()) for family in FAMILIES],
)
def made(request, tmp_path_factory):
    """A family, theirs, their tokenizer, ours in the direction of `PAIRS`, and the folder."""
    folder = tmp_path_factory.mktemp(request.param) / "model"
    theirs, tokenizer = make_multilingual(folder, request.param, **TRAINED)
    tokenizer.src_lang, tokenizer.tgt_lang = PAIRS[request.param]
    return request.param, theirs, tokenizer, load_model(folder).directed(Direction(*PAIRS[request.param])), folder


def shuffled(count):
    draw, words = random.Random(1), " ".join(SOURCE).split()
    return [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(count)]


def odd_lines(count):
    """Lines of words, marks, spaces and characters that no vocabulary has, and the fixed ones."""
    draw = random.Random(2)
    parts = [
        *" ".join(SOURCE + TARGET).split(),
        *ODD[1:],
        " ",
        "  ",
        "\u00a0",
        "😀",
        "日",
        "ß",
        "ﬀ",
        "…",
        "-",
        "'",
        "。",
    ]
    made = [
        "".join(draw.choice([" ", "", " "]) + draw.choice(parts) for _ in range(draw.randint(1, 9)))
        for _ in range(count)
    ]
    return [*ODD, *made]


def test_logits_and_loss_are_those_of_transformers(made):
    """A padded batch; the tag that the decoder reads is no part of the loss."""
    _, theirs, _, ours, _ = made
    pair = ours.tokenizers
    batch, expected = _check_logits(theirs, ours)
    labels = batch.target_output.masked_fill(~batch.target_mask, -100)
    loss = torch.nn.functional.cross_entropy(expected.transpose(1, 2), labels)
    own = translation_loss(ours.model, batch, smoothing=0.0)
    assert own.count == int(batch.target_mask.sum()) == sum(len(ids) + 1 for ids in pair.target.encode_all(TARGET))
    assert float(own.total.detach()) / own.count == pytest.approx(float(loss), abs=1e-5)


def _check_logits(theirs, ours):
    """The padded batch of all sentences, and their logits, after those of ours were found equal."""
    pair = ours.tokenizers
    batch = collate_translation(
        pair.source.encode_all(SOURCE), pair.target.encode_all(TARGET), pair, range(len(SOURCE))
    )
    assert not bool(batch.source_mask.all())
    with torch.no_grad():
        expected = theirs(batch.source_ids, batch.source_mask.long(), decoder_input_ids=batch.target_input).logits
        found = ours.model.project(ours.model(batch.source_ids, batch.source_mask, batch.target_input))
    assert (found - expected)[batch.target_mask].abs().max() < 1e-5 * max(1.0, float(expected.abs().max()))
    return batch, expected


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_of_random_architectures(family, number, tmp_path):
    """Every parameter is random, norms and biases too, so that no two of a shape can be confused."""
    theirs, _ = make_multilingual(tmp_path, family, seed=number, everywhere=True, **drawn_architecture(number))
    ours = load_model(tmp_path).directed(Direction(*PAIRS[family]))
    config = ours.description.model
    assert config.num_encoder_layers != config.num_decoder_layers
    _check_logits(theirs, ours)


@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_and_ids_are_those_of_transformers(family, tmp_path):
    _check_lines(family, tmp_path, odd_lines(60))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_and_ids_of_many_lines(family, tmp_path):
    _check_lines(family, tmp_path, odd_lines(1000))


def _check_lines(family, folder, lines, legacy=False):
    _, tokenizer = make_multilingual(folder, family, legacy=legacy)
    tokenizer.src_lang, tokenizer.tgt_lang = PAIRS[family]
    pair = load_model(folder).directed(Direction(*PAIRS[family])).tokenizers
    if family != "m2m100":  # their other tokenizers keep the space that a text ends with
        lines = [line.rstrip("\u00a0\u200b\u2028\t ") for line in lines]
    if family == "mbart25":  # theirs does not normalise, although the published files say so
        segmenter = SentencePieceProcessor(model_proto=pair.source.model_bytes)
        lines = [segmenter.normalize(line).replace("▁", " ").strip() for line in lines]
    ids = [[*row, *pair.source.end_ids] for row in pair.source.encode_all(lines)]
    for line, row in zip(lines, ids, strict=True):
        expected = tokenizer(line)["input_ids"]
        assert row == expected, (line, tokenizer.convert_ids_to_tokens(expected), pair.source.pieces(row))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_that_lists_no_languages_has_those_of_its_tokenizer(family, tmp_path):
    """With the ids that they have in transformers; `language_codes` is a name of M2M-100 alone."""
    _, tokenizer = make_multilingual(tmp_path, family)
    path = tmp_path / "tokenizer_config.json"
    if family == "m2m100":
        listed = {id_: {"content": piece} for piece, id_ in tokenizer.lang_token_to_id.items()}
        path.write_text(json.dumps({"tokenizer_class": "M2M100Tokenizer", "added_tokens_decoder": listed}))
    expected = load_model(tmp_path).tokenizers
    assert len(expected.source.tags) > 20
    (tmp_path / "tokenizer.json").unlink(missing_ok=True)
    codes = {} if family == "m2m100" else {"language_codes": "ML50"}
    path.write_text(json.dumps({"tokenizer_class": type(tokenizer).__name__, **codes}))
    assert load_model(tmp_path).tokenizers.fingerprint == expected.fingerprint


def test_tags_in_a_text_are_text(made):
    source = made[3].tokenizers.source
    tags = {source.vocabulary[tag] for tag in source.tags.values()}
    for tag in source.tags.values():
        assert not tags & set(source.encode(f"{tag} the cat")[len(source.tag_ids) :])


def test_the_old_layout_of_nllb_has_the_tag_at_the_end(tmp_path):
    _check_lines("nllb", tmp_path, ODD, legacy=True)


@pytest.mark.parametrize("count", [40, pytest.param(200, marks=pytest.mark.slow)])
def test_both_engines_give_the_texts_of_transformers(made, count, tmp_path):
    _, theirs, tokenizer, ours, _ = made
    lines, pair = shuffled(count), ours.tokenizers
    start = pair.target.start_ids
    tags = dict(decoder_start_token_id=start[0]) if len(start) == 1 else dict(forced_bos_token_id=start[1])
    sentences = [Sentence(ids, start=start) for ids in pair.source.encode_all(lines)]
    write_ctranslate2(tmp_path, ours.model, ours.description, pair.undirected, "float32")
    engines = [
        TorchEngine(TransformerSteps(ours.model, pair, torch.device("cpu"))), CTranslate2Engine(tmp_path, pair, 64),
    ]  # fmt: skip
    for beam, options in ((1, {}), (4, dict(early_stopping=True, length_penalty=0.0))):
        rows = theirs.generate(
            **tokenizer(lines, return_tensors="pt", padding=True), num_beams=beam, max_length=30 + len(start),
            bad_words_ids=[[1]], **tags, **options,
        ).tolist()  # fmt: skip
        ended = [2 in row[len(start) : len(start) + 29] for row in rows]
        assert sum(ended) > count / 2
        texts = tokenizer.batch_decode(rows, skip_special_tokens=True)
        config = SearchConfig(beam_size=beam, max_length_ratio=1e-6, max_length_offset=30, **options)
        for engine in engines:
            found = [one[0] for one in engine.translate(sentences, config)]
            mine = [pair.target.decode(one.ids) for one in found]
            assert [a for a, is_whole in zip(mine, ended, strict=True) if is_whole] == [
                b.strip() for b, is_whole in zip(texts, ended, strict=True) if is_whole
            ]
            assert not any(tag in text for text in mine for tag in pair.target.tags.values())


class _Ending(transformers.LogitsProcessor):
    def __call__(self, input_ids, scores):
        scores[:, 2] += 1000
        return scores


@pytest.mark.parametrize("setting", ["min_length", "min_new_tokens"])
def test_a_minimum_length_is_the_number_of_pieces_that_transformers_enforces(made, setting, tmp_path):
    """Its own number counts the start, or the tag that it forces."""
    _, theirs, tokenizer, ours, folder = made
    shutil.copytree(folder, tmp_path / "model")
    stored = tmp_path / "model" / "generation_config.json"
    stored.write_text(json.dumps({**json.loads(stored.read_text()), setting: 8}))
    start = ours.tokenizers.target.start_ids
    tags = dict(decoder_start_token_id=start[0]) if len(start) == 1 else dict(forced_bos_token_id=start[1])
    (row,) = theirs.generate(
        **tokenizer(SOURCE[:1], return_tensors="pt"), num_beams=1, max_length=40, logits_processor=[_Ending()], **tags,
        **{setting: 8},
    ).tolist()  # fmt: skip
    assert load_model(tmp_path / "model").description.search.min_length == row[len(start) :].index(2)


def test_a_tag_costs_nothing(made):
    """The log-probability is that of the translation alone: forced decoding gives the same number."""
    _, _, _, ours, _ = made
    pair = ours.tokenizers
    engine = TorchEngine(TransformerSteps(ours.model, pair, torch.device("cpu")))
    sentences = [Sentence(ids, start=pair.target.start_ids) for ids in pair.source.encode_all(SOURCE)]
    found = [one[0] for one in engine.translate(sentences, SearchConfig(beam_size=2))]
    batch = collate_translation(
        [one.source_ids for one in sentences], [one.ids for one in found], pair, range(len(found))
    )
    with torch.inference_mode():
        logits = ours.model.project(ours.model(batch.source_ids, batch.source_mask, batch.target_input))
    forced = logits.log_softmax(-1).gather(2, batch.target_output[:, :, None]).squeeze(2)
    for row, one in enumerate(found):
        first = len(pair.target.start_ids) - 1
        expected = forced[row, first : first + len(one.ids) + one.finished].sum()
        assert one.log_prob == pytest.approx(float(expected), abs=1e-3)


def test_a_model_folder_of_ours_keeps_languages_and_weights(made, tmp_path):
    _, _, _, ours, folder = made
    save_model(tmp_path / "ours", ours.model.state_dict(keep_vars=True), ours.description, ours.tokenizers)
    kept = load_model(tmp_path / "ours")
    assert kept.tokenizers.fingerprint == load_model(folder).tokenizers.fingerprint
    assert kept.directed().tokenizers.fingerprint == ours.tokenizers.fingerprint  # the direction that it was saved with
    for name, weight in ours.model.state_dict().items():
        assert torch.equal(weight, kept.model.state_dict()[name])


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("Swahili", ["eng_Latn", "swh_Latn"], "swh_Latn"),
        ("বাংলা", ["en", "bn"], "bn"),
        ("luxembourgish", ["en", "lb"], "lb"),
        ("nb", ["en", "no"], "no"),
        ("Norwegian", ["eng_Latn", "nno_Latn"], "nno_Latn"),
        ("no", ["nob_Latn", "nno_Latn"], None),
        ("nn", ["en", "nb"], None),
        ("ckb", ["kmr_Latn", "eng_Latn"], None),
        ("ckb", ["ckb_Arab", "kmr_Latn"], "ckb_Arab"),
        ("yue", ["zho_Hans"], None),
        ("cmn", ["zho_Hans", "yue_Hant"], "zho_Hans"),
        ("ar", ["arb_Arab", "arz_Arab"], "arb_Arab"),
    ],
)
def test_a_language_is_found_under_its_names_and_not_under_those_of_its_relatives(name, known, found):
    if found:
        assert find_language(name, known, "--to") == found
        return
    with pytest.raises(UserError, match=f"--to {name}: (the model has several such languages|not a language)"):
        find_language(name, known, "--to")
