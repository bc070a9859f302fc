"""Settings that cannot take effect are named, in `--dry-run` and at the start of training; what holds is recorded."""

import re
from pathlib import Path

import pytest
from support.our_models import make_ours

from seq2seq.cli import main
from seq2seq.cli.train import _log_result
from seq2seq.config import file as config_file
from seq2seq.config.problems import _all_keys
from seq2seq.config.schema import Config, TokenizerConfig, TrainingConfig
from seq2seq.tasks.effects import WITHOUT_EFFECT, without_effect
from seq2seq.text.tokenizer import Tokenizer
from seq2seq.text.trained_with import trained_with
from seq2seq.training.progress import foreseen_steps, further, too_long
from seq2seq.training.state import TrainingResult

TEXT = """
source_language: en
target_language: de
data:
  train: {source: train.en, target: train.de}
  valid: {source: valid.en, target: valid.de}
tokenizer: {vocab_size: 600}
model: {preset: tiny}
training: {max_steps: 3, batch_tokens: 256, warmup_steps: 1, threads: 1, device: cpu}
"""
CLASSIFIER = """
task: classification
data: {train: {tsv: train.tsv}, valid: {tsv: train.tsv}}
"""
PHRASEBOOK = Path(__file__).parents[2] / "data" / "phrasebook"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    for name, lines in (("train", slice(0, 300)), ("valid", slice(300, 320))):
        for language in ("en", "de"):
            found = (PHRASEBOOK / f"train.{language}").read_text().splitlines(keepends=True)[lines]
            (tmp_path / f"{name}.{language}").write_text("".join(found))
    (tmp_path / "train.tsv").write_text("text\tlabel\ngood\t1\nbad\t0\n")
    (tmp_path / "toy.yaml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S2S_DATA", raising=False)
    return tmp_path


def named(text: str, *overrides: str) -> set[str]:
    return {line.split(": ")[0] for line in without_effect(config_file.parse(text, overrides=overrides))}


# A value for each key that can be without effect, the configuration in which it is, and how it gets an effect.
LEARNED = TEXT.replace("tiny", "tiny, positions: learned")
CASES = {
    "classifier.pooling": ("first", TEXT, None),
    "data.label_names": ("{a: b}", TEXT, None),
    "search.beam_size": ("3", CLASSIFIER, None),
    "evaluation.metrics": ("[chrf]", CLASSIFIER, None),
    "target_language": ("de", CLASSIFIER, None),
    "tokenizer.shared": ("false", CLASSIFIER, None),
    "model.num_decoder_layers": ("5", CLASSIFIER, None),
    "model.tied_embeddings": ("decoder", CLASSIFIER, None),
    "model.output_bias": ("true", CLASSIFIER, None),
    "training.final_learning_rate": ("0.1", TEXT, "training.schedule=cosine"),
    "training.track_samples": (
        "true",
        TEXT.replace("{max_steps", "{trackers: [], max_steps"),
        "training.trackers=[mlflow]",
    ),
    "training.dropout_epochs": ("2.0", TEXT + "\n", "model.dropout=0.2"),
    "tokenizer.init_from": ("..", TEXT.replace("max_steps", "init_from: '.', max_steps"), "training.init_from="),
    "tokenizer.sampling_nbest": ("8", TEXT, "tokenizer.sampling=0.2"),
    "tokenizer.sampling_alpha": ("0.5", TEXT, "tokenizer.sampling=0.2"),
    "model.position_layout": ("halves", LEARNED, "model.positions=sinusoidal"),
    "model.position_formula": ("fairseq", LEARNED, "model.positions=sinusoidal"),
    "model.position_offset": ("2", LEARNED, "model.positions=sinusoidal"),
    "model.initialization": ("mimetic", TEXT.replace("max_steps", "init_from: '.', max_steps"), "training.init_from="),
    "training.vocabulary.extend": ("5", TEXT, None),
    "evaluation.tokenize": ("char", TEXT + "evaluation: {metrics: [chrf]}", "evaluation.metrics=[bleu, chrf]"),
    "search.early_stopping": ("true", TEXT + "search: {beam_size: 1}", "search.beam_size=4"),
    "search.seed": ("7", TEXT, "search.sample=true"),
    "data.temperature": ("3.0", TEXT, None),
    "training.shard": ("true", TEXT, None),
    "data.train.subset": ("x", TEXT, None),
    "data.train.split": ("test", TEXT, None),
    "data.train.streaming": ("true", TEXT, None),
    "data.train.source_column": ("2", TEXT, "data.train={tsv: train.tsv}"),
    "data.valid.target_column": ("2", TEXT, "data.valid={tsv: train.tsv}"),
    "data.train.text_column": ("x", TEXT, None),
    "data.valid.weight": ("2", TEXT, None),
    "data.train.from": ("en", CLASSIFIER, None),
    "data.valid.to": ("de", CLASSIFIER, None),
    "data.train.both_ways": ("true", CLASSIFIER, None),
    "data.valid.label_column": ("x", TEXT, None),
}


@pytest.mark.parametrize("key", CASES)
def test_a_key_without_effect_is_named_and_with_effect_it_is_not(folder, key):
    value, text, remedy = CASES[key]
    if key == "training.dropout_epochs":
        text = text.replace("tiny", "tiny, dropout: 0.0")
    assert key in named(text, f"{key}={value}")
    assert key not in named(text)
    if remedy is not None:
        source = remedy.partition("=")[0] in key
        assert key not in (named(text, remedy, f"{key}={value}") if source else named(text, f"{key}={value}", remedy))


@pytest.mark.parametrize(
    ("given", "key"),
    [
        (("data.train={tmx: a.tmx, source_column: 3}",), "data.train.source_column"),
        (("data.valid={tmx: a.tmx, target_column: x}",), "data.valid.target_column"),
        (("tokenizer={kind: bpe, sampling: 0.2, sampling_nbest: 4}",), "tokenizer.sampling_nbest"),
        (("data.train.noise={seed: 4}",), "data.train.noise"),
        (("data.train.noise={upper: 0.0}",), "data.train.noise"),
    ],
)
def test_a_key_without_effect_for_another_reason_is_named_once(folder, given, key):
    (folder / "a.tmx").write_text("<tmx/>")
    told = list(without_effect(config_file.parse(TEXT, overrides=given)))
    assert [line.split(": no effect; ")[0] for line in told] == [key]
    assert named(TEXT, "data.train.noise={upper: 0.1}", "tokenizer={kind: bpe, sampling: 0.2}") == set()


def test_the_table_names_keys_that_exist_and_all_of_its_rows_are_tried():
    keys = {*_all_keys(Config), "classifier", "search", "evaluation"}
    rows = [name for names in WITHOUT_EFFECT for name in names]
    assert set(rows) <= keys
    assert all(any(case == row or case.startswith(f"{row}.") for case in CASES) for row in rows)


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_shipped_configs_have_no_key_without_effect(path):
    assert list(without_effect(config_file.load(path, check_files=False))) == []


@pytest.mark.slow
@pytest.mark.parametrize("dry_run", [["--dry-run"], []])
def test_they_are_told_before_training_once_each(folder, capfd, dry_run):
    settings = ["data.train.target=train.en", "target_language=en", "training.warmup_steps=1000",
                "training.final_learning_rate=0.1", "training.patience=4", "training.validate_every=2"]  # fmt: skip
    arguments = [word for setting in settings for word in ("--set", setting)]
    assert main(["train", "toy.yaml", *dry_run, *arguments]) == 0
    told = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    for words in (
        "training.final_learning_rate: no effect; only the schedules cosine and linear end at it",
        "source_language and target_language are both en",
        "data.train: source and target are the same text",
        "training.warmup_steps: 1,000, but training has about 3 steps",
        "training.patience: 4, but it cannot end a training with about 2 validations",
    ):
        assert sum(words in line for line in told) == 1, (words, told)


@pytest.mark.slow
def test_a_copy_of_the_text_under_another_name_is_the_same_text(folder, capfd):
    (folder / "copy.de").write_text((folder / "valid.en").read_text())
    assert main(["train", "toy.yaml", "--dry-run", "--set", "data.valid.target=copy.de"]) == 0
    assert "data.valid: source and target are the same text" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("values", "steps", "keys"),
    [
        ({"max_steps": 60}, 60, ["warmup_steps"]),
        ({"max_steps": 60, "warmup_steps": 59}, 60, []),
        ({"max_epochs": 2.0, "warmup_steps": 100}, 20, ["warmup_steps"]),
        ({"max_minutes": 1.0, "warmup_steps": 100}, 60, ["warmup_steps"]),
        ({"max_steps": 60, "max_minutes": 100.0, "warmup_steps": 60}, 60, ["warmup_steps"]),
        ({"max_steps": 60, "warmup_steps": 0, "patience": 6, "validate_every": 10}, 60, ["patience"]),
        ({"max_steps": 60, "warmup_steps": 0, "patience": 5, "validate_every": 10}, 60, []),
        ({"max_steps": 60, "warmup_steps": 0, "validate_every": 61}, 60, ["validate_every"]),
        ({"max_steps": 60, "warmup_steps": 0, "checkpoint_every": 100}, 60, ["checkpoint_every"]),
        ({}, 20_000, []),
    ],
)
def test_what_a_training_is_too_short_for(values, steps, keys):
    config = TrainingConfig(**values)
    assert foreseen_steps(config, seconds_per_step=1.0, epochs_per_step=0.1) == pytest.approx(steps)
    assert [re.match(r"training\.(\w+): ", line)[1] for line in too_long(config, steps)] == keys


# -- tokenizers next to init_from --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize("normalization", ["identity", "nmt_nfkc"])
@pytest.mark.parametrize("byte_fallback", [True, False])
def test_the_settings_of_a_tokenizer_are_read_from_it(kind, normalization, byte_fallback):
    lines = (PHRASEBOOK / "train.en").read_text().splitlines()[:400]
    settings = TokenizerConfig(
        kind=kind, vocab_size=400, normalization=normalization, byte_fallback=byte_fallback, character_coverage=0.99
    )
    model = Tokenizer.train(lines, settings, 1).model_bytes
    expected = {
        "kind": kind,
        "normalization": normalization,
        "byte_fallback": byte_fallback,
        "character_coverage": 0.99,
    }
    assert trained_with(model) == expected
    for cut in range(0, 60):
        assert isinstance(trained_with(model[:cut]), dict)  # no damage is an error


FINETUNE = TEXT.replace("tokenizer: {vocab_size: 600}\nmodel: {preset: tiny}\n", "").replace(
    "max_steps: 3", "init_from: old, max_steps: 3"
)


@pytest.fixture
def tuned(folder):
    make_ours(folder / "old")
    (folder / "tune.yaml").write_text(FINETUNE)
    return folder


@pytest.mark.parametrize(
    "setting",
    ["tokenizer.vocab_size=16000", "tokenizer.normalization=nmt_nfkc_cf", "tokenizer.sample_lines=7",
     "tokenizer.character_coverage=0.991", "model.d_model=512", "model.norm=rms"],
)  # fmt: skip
def test_keys_that_the_initial_model_decides_are_refused_alike(tuned, capfd, setting):
    assert main(["train", "tune.yaml", "--dry-run", "--set", setting]) == 2
    key = setting.partition("=")[0]
    assert re.search(rf"{re.escape(key)}: .*training\.init_from ha(s|ve) .*; leave the key out", capfd.readouterr().err)


@pytest.mark.slow
def test_what_holds_is_recorded_and_may_be_written(tuned, capfd):
    assert main(["train", "tune.yaml", "--set", "tokenizer.sampling=0.2"]) == 0
    recorded = config_file.load(Path("runs/tune/config.yaml")).tokenizer
    tokenizer = Tokenizer.load(Path("old/source.spm"))
    assert (recorded.vocab_size, recorded.sampling) == (tokenizer.vocab_size, 0.2)
    assert {key: getattr(recorded, key) for key in trained_with(tokenizer.model_bytes)} == trained_with(
        tokenizer.model_bytes
    )
    same = ["--set", f"tokenizer.vocab_size={recorded.vocab_size}", "--set", f"tokenizer.kind={recorded.kind}"]
    assert main(["train", "tune.yaml", "--set", "tokenizer.sampling=0.2", *same]) == 0
    assert "already finished" in capfd.readouterr().err


# -- before work, and after it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dry_run", [["--dry-run"], []])
def test_a_tokenizer_that_cannot_be_had_ends_before_any_work(folder, capfd, monkeypatch, dry_run):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("SACREBLEU", str(folder / "nothing"))
    assert main(["train", "toy.yaml", *dry_run, "--set", "evaluation.tokenize=flores200"]) == 2
    assert "flores200" in capfd.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("status", "reason", "improving", "expected"),
    [
        ("finished", "max_minutes 4 reached", True, "--set training.max_minutes=8"),
        ("finished", "max_minutes 4 reached", False, ""),
        ("finished", "max_steps 500 reached", True, "--set training.max_steps=1000"),
        ("finished", "no significant improvement of bleu in 3 validations", True, ""),
        ("already finished", "max_epochs 2.5 reached", False, "--set training.max_epochs=5"),
        ("already finished", "max_minutes 4 reached", False, "to continue, run the same command"),
    ],
)
def test_how_to_train_on_is_told_where_a_limit_came_too_early(status, reason, improving, expected):
    limits = {"max_steps": 500, "max_epochs": 2.5, "max_minutes": 4.0}
    found = further(TrainingResult(status, reason, 424, 424, 1.0, "bleu", improving), TrainingConfig(**limits))
    assert found.endswith(expected) or expected in found
    assert bool(found) == bool(expected)
    assert ("still improved" in found) == (improving and bool(expected))


def test_the_end_of_a_training_says_how_to_go_on(caplog):
    result = TrainingResult("finished", "max_steps 5 reached", 5, 5, 1.0, "bleu", True)
    text = "source_language: en\ntarget_language: de\ntraining: {max_steps: 5}\n"
    text += "data: {train: {source: a, target: b}, valid: {source: a, target: b}}\n"
    with caplog.at_level("INFO", "seq2seq.cli"):
        _log_result(result, Path("runs/x"), config_file.parse(text, check_files=False))
    assert "training.max_steps ended training while the model still improved" in caplog.text
    assert "s2s translate runs/x" in caplog.text


@pytest.mark.parametrize(
    ("limits", "done", "expected"),
    [({"max_epochs": 0.75}, {"epoch": 0.7503}, "max_epochs=1.5"), ({"max_epochs": 12.6}, {"epoch": 12.61}, "=25.2"),
     ({"max_minutes": 0.5}, {"seconds": 33.0}, "max_minutes=1"), ({"max_minutes": 1}, {"seconds": 95.0}, "=2")],
)  # fmt: skip
def test_a_limit_that_is_passed_a_little_has_ended_the_run(limits, done, expected):
    (key,) = limits
    result = TrainingResult("finished", f"{key} {limits[key]} reached", 9, 9, 1.0, "bleu", True, **done)
    found = further(result, TrainingConfig(**limits))
    assert found.startswith(f"training.{key} ended training while the model still improved")
    assert found.endswith(expected)


@pytest.mark.parametrize("improving", [True, False])
@pytest.mark.parametrize(
    ("reason", "expected"),
    [("max_steps 500 reached", "max_steps=1600"), ("max_epochs 2.5 reached", "max_epochs=26"),
     ("max_minutes 4 reached", "max_minutes=22")],
)  # fmt: skip
def test_a_limit_below_what_is_trained_is_told_with_one_that_continues(reason, expected, improving):
    """The run ended by another limit, so it is not told that this one ended it."""
    result = TrainingResult("already finished", reason, 800, 800, 1.0, "bleu", improving, 12.003, 604.0)
    found = further(result, TrainingConfig(max_steps=500, max_epochs=2.5, max_minutes=4.0))
    assert found == f"to continue, run the same command with --set training.{expected}"


@pytest.mark.slow
def test_a_finished_run_names_the_limit_that_holds_now(folder, capfd):
    slow = ["--set", "training.max_steps=", "--set", "training.validate_every=1"]
    assert main(["train", "toy.yaml", *slow, "--set", "training.max_minutes=0.01"]) == 0
    told = capfd.readouterr().err
    assert "while the model still improved" in told or "finished at step" in told
    assert main(["train", "toy.yaml", *slow, "--set", "training.max_minutes=0.0101"]) == 0
    told = capfd.readouterr().err
    assert "max_minutes 0.0101 reached" in told
    (more,) = re.findall(r"run the same command with --set training.max_minutes=([\d.]+)", told)
    assert float(more) >= 2 * 0.0101
    assert main(["train", "toy.yaml", *slow, "--set", f"training.max_minutes={more}", "--dry-run"]) == 0
    assert "already finished" not in capfd.readouterr().err
