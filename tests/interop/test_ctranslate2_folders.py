"""Folders of CTranslate2 and the cache of them: what is in them, when they are made again, and what is refused."""

import json
import os
from types import SimpleNamespace

import ctranslate2
import pytest
from support.converted import converted_engine, sentences
from support.foreign_models import SOURCE
from support.forked import Forked
from support.our_models import make_ours

from seq2seq.config.ranges import QUANTIZATIONS
from seq2seq.config.schema import SearchConfig
from seq2seq.errors import ModelError, RunError, UserError
from seq2seq.files import record
from seq2seq.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq.inference.loading import check_beam_format, default_format, load_engine, try_out
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator
from seq2seq.interop import ctranslate2 as interop
from seq2seq.interop import ctranslate2_export as export
from seq2seq.text.tokenizer import TokenizerPair


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    return make_ours(tmp_path_factory.mktemp("ours") / "model", ending=6.0, search=SearchConfig(early_stopping=True))


@pytest.mark.parametrize("quantization", QUANTIZATIONS)
def test_every_number_format_is_written_and_runs(ours, quantization, tmp_path):
    """If a processor lacks a number format, CTranslate2 reports this and computes in another one."""
    engine = converted_engine(ours, tmp_path / "export", quantization=quantization)
    assert all(engine.translate(sentences(ours, 4), SearchConfig(beam_size=2)))
    assert interop.read_description(tmp_path / "export")[2] == quantization
    assert engine.compute_type in ctranslate2.get_supported_compute_types("cpu")
    if quantization in ctranslate2.get_supported_compute_types("cpu") - {"int8"}:
        assert engine.compute_type == quantization
    pieces = ours.tokenizers.source.pieces(ours.tokenizers.source.encode(SOURCE[0]))
    bare = ctranslate2.Translator(str(tmp_path / "export"), intra_threads=1).translate_batch([pieces], beam_size=2)
    ids = [engine._target_ids[piece] for piece in bare[0].hypotheses[0]]
    texts = [one.text for one in Translator.load(tmp_path / "export", threads=1).translate(SOURCE)]
    assert len(texts) == len(SOURCE)
    assert any(texts)
    assert isinstance(ours.tokenizers.target.decode(ids), str)


def test_int8_is_smaller_than_float32(tmp_path):
    model = make_ours(tmp_path / "ours", d_model=64)
    sizes = {}
    for quantization in ("float32", "int8"):
        converted_engine(model, tmp_path / quantization, quantization=quantization)
        sizes[quantization] = (tmp_path / quantization / interop.WEIGHTS).stat().st_size
    assert sizes["int8"] < 0.5 * sizes["float32"]


def test_a_converted_folder_says_all_that_translating_needs(ours, tmp_path):
    converted_engine(ours, tmp_path / "export")
    description, tokenizers, _ = interop.read_description(tmp_path / "export")
    assert tokenizers.fingerprint == ours.tokenizers.fingerprint
    assert description == ours.description
    lines = [*SOURCE, "", "  "]
    expected = Translator.load(tmp_path / "export", threads=1).translate(lines)
    (tmp_path / "moved").mkdir()
    (tmp_path / "export").rename(tmp_path / "moved" / "model")
    assert Translator.load(tmp_path / "moved" / "model", threads=1).translate(lines) == expected
    assert any(one.text for one in expected)
    assert [one.text for one in expected[-2:]] == ["", ""]


def test_auto_takes_ctranslate2_where_it_can(ours):
    def chosen(*models, **options):
        loaded = load_engine(models or [ours.folder], **{"threads": 1, "device": "cpu", **options})
        return type(loaded.engine), loaded.note

    assert chosen() == (CTranslate2Engine, "CTranslate2, float32")
    assert chosen(quantization="int8")[1].startswith("CTranslate2, int8")
    for options, reason in (
        (dict(engine="torch"), "--engine torch"),
        (dict(search={"sample": True}), "search.sample"),
        (dict(search={"no_repeat_ngram": 3}), "search.no_repeat_ngram"),
        (dict(precision="bfloat16"), "--precision bfloat16"),
    ):
        assert chosen(**options) == (TorchEngine, f"PyTorch on cpu ({reason})")
    assert chosen(ours.folder, ours.folder) == (TorchEngine, "PyTorch on cpu (an ensemble)")
    with pytest.raises(UserError, match=r"--quantization int8: only CTranslate2 .* \(an ensemble\)"):
        chosen(ours.folder, ours.folder, quantization="int8")


def test_a_model_whose_own_settings_differ_is_for_torch(tmp_path):
    model = make_ours(tmp_path / "ours", search=SearchConfig(min_length=3))
    assert load_engine([model.folder], device="cpu").note == "PyTorch on cpu (search.min_length)"
    assert isinstance(load_engine([model.folder], "ctranslate2", device="cpu").engine, CTranslate2Engine)


@pytest.mark.parametrize(
    ("device", "precision", "expected"),
    [("cuda:0", None, "float16"), ("cuda:0", "auto", "float16"), ("cuda:0", "float32", "here"), ("cpu", None, "here")],
)
def test_a_gpu_multiplies_in_float16_unless_told_otherwise(device, precision, expected):
    assert default_format(device, precision, "here") == expected


@pytest.mark.parametrize("compute_type", ["bfloat16", "int8_bfloat16"])
def test_a_beam_search_in_bfloat16_is_refused_on_a_gpu(compute_type):
    with pytest.raises(UserError, match=rf"beam search in {compute_type}, .* choose --quantization float16, or"):
        check_beam_format(compute_type, SearchConfig(beam_size=2))
    check_beam_format(compute_type, SearchConfig(beam_size=1))
    check_beam_format("float16", SearchConfig(beam_size=2))


def test_a_library_that_is_missing_on_a_gpu_is_named(ours, tmp_path):
    """The translator that lacks it stands for one on a GPU, where it is loaded at the first translation."""
    engine = converted_engine(ours, tmp_path / "export")
    try_out(engine, ours.tokenizers, "cpu")

    def lacking(*_, **__):
        raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")

    engine._translator = SimpleNamespace(translate_batch=lacking, device="cuda", num_translators=1)
    with pytest.raises(UserError, match=r"ctranslate2 on cuda:0: Library libcublas.so.12 is .* to LD_LIBRARY_PATH"):
        try_out(engine, ours.tokenizers, "cuda:0")


# -- the cache -------------------------------------------------------------------------------------


FREE = dict(ending=4.0, search=SearchConfig())


def entries(cache):
    return sorted(path for path in cache.glob("cache/seq2seq/ctranslate2/*") if path.is_dir())


def test_a_model_is_converted_once_and_old_conversions_go(tmp_path):
    model = make_ours(tmp_path / "ours", **FREE)
    make_ours(tmp_path / "other", **FREE)
    for path in ("ours", "other"):
        Translator.load(tmp_path / path)
    before = entries(tmp_path)
    times = [(path / interop.WEIGHTS).stat().st_mtime_ns for path in before]
    Translator.load(tmp_path / "ours")
    assert [(path / interop.WEIGHTS).stat().st_mtime_ns for path in before] == times
    Translator.load(tmp_path / "ours", quantization="int8")
    assert len(entries(tmp_path)) == 3, "number formats of the same model stay side by side"
    assert make_ours(tmp_path / "ours", **FREE, seed=4).folder == model.folder
    Translator.load(tmp_path / "ours")
    assert len(entries(tmp_path)) == 2, "those of the model that was there before are gone"
    assert len(set(entries(tmp_path)) & set(before)) == 1, "another folder's stays"


def test_search_settings_that_change_are_seen(tmp_path):
    make_ours(tmp_path / "ours", ending=4.0, search=SearchConfig(beam_size=2))
    assert Translator.load(tmp_path / "ours").config.beam_size == 2
    make_ours(tmp_path / "ours", ending=4.0, search=SearchConfig(beam_size=3))
    assert Translator.load(tmp_path / "ours").config.beam_size == 3


def test_a_damaged_conversion_is_made_again(ours, tmp_path):
    Translator.load(ours.folder)
    (folder,) = entries(tmp_path)
    before = (folder / interop.WEIGHTS).read_bytes()
    flip_a_bit(folder / interop.WEIGHTS)
    assert Translator.load(ours.folder).engine_note.startswith("CTranslate2")
    assert (folder / interop.WEIGHTS).read_bytes() == before


def test_a_cached_conversion_is_not_used_for_a_damaged_model(tmp_path):
    model = make_ours(tmp_path / "ours", **FREE)
    Translator.load(model.folder)
    flip_a_bit(model.folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        Translator.load(model.folder)


def test_a_cache_that_cannot_be_written_is_a_warning_or_an_error(ours, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    translator = Translator.load(ours.folder, device="cpu")
    assert translator.engine_note == "PyTorch on cpu (no converted model)"
    assert caplog.text.count("cannot be written") == 1
    with pytest.raises(RunError, match=r"cannot be written .* set XDG_CACHE_HOME") as caught:
        Translator.load(ours.folder, engine="ctranslate2")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_processes_that_start_together_convert_once(tmp_path):
    """Some find the model that was there before, some its successor: each gets what it asked for."""
    make_ours(tmp_path / "ours", **FREE)

    def translate() -> None:
        real = export.write_ctranslate2
        export.write_ctranslate2 = lambda *given: (print("converted"), real(*given))
        print(Translator.load(tmp_path / "ours", threads=1).translate(["a word"])[0].text)

    running = [Forked(translate) for _ in range(4)]
    said = [process.communicate(300)[0].splitlines() for process in running]
    assert [process.returncode for process in running] == [0] * 4
    assert sum("converted" in lines for lines in said) == 1
    assert len({lines[-1] for lines in said}) == 1


# -- errors ----------------------------------------------------------------------------------------


def test_wrong_uses_are_one_line(ours, tmp_path):
    converted_engine(ours, tmp_path / "export")
    for wrong, word in (
        (lambda: Translator.load(ours.folder, ours.folder, engine="ctranslate2"), "ensemble"),
        (lambda: Translator.load(tmp_path / "export", ours.folder), "ensemble"),
        (lambda: Translator.load(tmp_path / "export", engine="torch"), "--engine torch"),
        (
            lambda: Translator.load(ours.folder, engine="torch", quantization="int16"),
            "only CTranslate2 has this option",
        ),
        (
            lambda: Translator.load(tmp_path / "export", quantization="int8"),
            "--quantization: .* convert the model again",
        ),
        (lambda: Translator.load(tmp_path / "export", precision="float32"), "--precision: .* leave the option out"),
        (lambda: Translator.load(tmp_path / "export", sample=True, seed=7), "cannot repeat draws .* leave out --seed"),
        (
            lambda: Translator.load(ours.folder, engine="ctranslate2", quantization="int8", precision="float32"),
            "--quantization and --precision",
        ),
    ):
        with pytest.raises(UserError, match=word) as caught:
            wrong()
        assert "\n" not in str(caught.value)


def test_a_user_without_a_home_is_told_where_the_cache_can_be(ours, monkeypatch, caplog):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)  # without an entry in the password file
    with pytest.raises(RunError, match=r"no home folder for the cache .* set XDG_CACHE_HOME") as caught:
        Translator.load(ours.folder, engine="ctranslate2")
    assert "\n" not in str(caught.value)
    assert Translator.load(ours.folder, device="cpu").engine_note.startswith("PyTorch")
    assert "no home folder" in caplog.text


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) * 7 // 10] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (interop.DESCRIPTION, lambda path: path.write_text("{}")),
        (interop.WEIGHTS, lambda path: os.truncate(path, 5000)),
        (interop.WEIGHTS, lambda path: path.write_bytes(b"")),
        (interop.WEIGHTS, flip_a_bit),
        ("shared_vocabulary.json", flip_a_bit),
        ("source.spm", flip_a_bit),
        ("target.spm", lambda path: path.unlink()),
    ],
)
def test_damage_is_seen_by_content_and_one_line(ours, tmp_path, name, damage):
    converted_engine(ours, tmp_path / "export")
    damage(tmp_path / "export" / name)
    with pytest.raises(ModelError, match="convert the model again") as caught:
        Translator.load(tmp_path / "export")
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_ctranslate2_itself_refuses_is_one_line(ours, tmp_path):
    """A whole folder of a version to come."""
    converted_engine(ours, tmp_path / "export")
    folder = tmp_path / "export"
    (folder / interop.WEIGHTS).write_bytes(b"\xff\xff\xff\x7f" + (folder / interop.WEIGHTS).read_bytes()[4:])
    described = json.loads((folder / interop.DESCRIPTION).read_text())
    described["files"][interop.WEIGHTS] = record(folder / interop.WEIGHTS)
    (folder / interop.DESCRIPTION).write_text(json.dumps(described))
    with pytest.raises(UserError, match="binary version") as caught:
        Translator.load(folder)
    assert "\n" not in str(caught.value)


def test_every_obstacle_is_named(ours, tmp_path):
    class Repeating:
        """A vocabulary as no SentencePiece model has it."""

        vocab_size, eos_id, unk_id, start_id, pad_id = 3, 2, 0, 1, 1

        def pieces(self, ids):
            return [("<unk>", "a", "a")[id_] for id_ in ids]

    pair = TokenizerPair(Repeating(), ours.tokenizers.target)
    assert len(list(export.obstacles(pair))) == 2
    with pytest.raises(ModelError, match=r"twice.*eos_id"):
        export.write_ctranslate2(tmp_path, ours.model, ours.description, pair, "float32")
