"""Fine-tuning as its user meets it: from a model of one domain to another domain, and back again by half."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from support.domains import DOMAINS, OLD, write_domain
from support.foreign_models import make_marian
from support.our_models import make_ours

from seq2seq.cli import main
from seq2seq.config import file as config_file
from seq2seq.config.corpora import DataConfig, SourceConfig
from seq2seq.config.presets import TRAINING_PRESETS
from seq2seq.config.schema import Config, ModelConfig, SearchConfig, TrainingConfig
from seq2seq.errors import ConfigError
from seq2seq.store.checkpoint import latest_checkpoint, load_checkpoint
from seq2seq.store.model_folder import load_model
from seq2seq.tasks.inputs import complete

ROOT = Path(__file__).parents[2]
TUNE = """
source_language: en
target_language: de
data:
  train:
    - {source: colours.en, target: colours.de}
    - {source: numbers.en, target: numbers.de, weight: 0.25}
  valid: {source: colours-test.en, target: colours-test.de}
  test:
    colours: {source: colours-test.en, target: colours-test.de}
    numbers: {source: numbers-test.en, target: numbers-test.de}
  num_workers: 1
training: {init_from: runs/old, max_steps: 6, batch_tokens: 512, log_every: 1, threads: 1}
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a model of one domain in `runs/old`, tuned to another in `runs/tune`; and what tuning said."""
    folder = tmp_path_factory.mktemp("finetune")
    for domain in DOMAINS:
        write_domain(folder, domain, 400, 1)
        write_domain(folder, f"{domain}-test", 12, 2)
    (folder / "old.yaml").write_text(OLD)
    (folder / "tune.yaml").write_text(TUNE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("S2S_DATA", raising=False)
        assert main(["train", "old.yaml"]) == 0
        assert main(["train", "tune.yaml"]) == 0
    return folder


@pytest.fixture
def folder(trained, monkeypatch):
    monkeypatch.chdir(trained)
    return trained


def state(path):
    return load_model(path).model.state_dict()


# -- the run ---------------------------------------------------------------------------------------


def test_the_vocabulary_is_that_of_the_initial_model_byte_for_byte(folder):
    for name in ("source.spm", "target.spm"):
        assert (folder / "runs/tune/best" / name).read_bytes() == (folder / "runs/old/best" / name).read_bytes()


def test_small_steps_are_in_force_where_nothing_else_is_said(folder):
    config = config_file.load(folder / "runs/tune/config.yaml", check_files=False).training
    assert config.preset == "finetune"
    for key, value in TRAINING_PRESETS["finetune"].items():
        assert getattr(config, key) == value
    records = [json.loads(line) for line in (folder / "runs/tune/metrics.jsonl").read_text().splitlines()]
    rates = [record["learning_rate"] for record in records if "learning_rate" in record]
    assert rates == pytest.approx([1e-4 * step / 100 for step in range(1, 7)]), "warm-up, of 100 steps"


def test_what_is_not_said_is_as_in_the_initial_model(folder):
    old, tuned = load_model("runs/old"), load_model("runs/tune")
    assert tuned.model.config == old.model.config.model_copy(update={"preset": None})
    assert tuned.description.search == old.description.search == SearchConfig(beam_size=2, length_penalty=0.7)


def test_a_few_small_steps_stay_near_the_initial_model(folder):
    old = state("runs/old")
    tuned = load_checkpoint(latest_checkpoint(folder / "runs/tune/checkpoints")).tensors["model"]
    old = {name: weight for name, weight in old.items() if name in tuned}
    assert any(not torch.equal(tuned[name], weight) for name, weight in old.items())
    for name, weight in old.items():
        assert (tuned[name] - weight).abs().max() < 6 * 1e-4


def test_both_domains_are_scored_and_the_card_says_so(folder, capfd):
    card = ModelCard.load(folder / "runs/tune/best/README.md")
    on_card = {(one.dataset_name, one.metric_type): one.metric_value for one in card.data.eval_results}
    assert {name for name, _ in on_card} == {"valid", "colours", "numbers"}
    assert "The initial model on numbers: bleu" in card.text
    # and in the figures of `s2s bleu` with validation's engine, to the last digit that it prints
    assert main(["bleu", "--model", "runs/tune", "--engine", "torch", "--format", "json", "-w", "2"]) == 0
    scored = json.loads(capfd.readouterr().out)
    assert [one["test_set"] for one in scored] == ["colours", "colours", "numbers", "numbers"]
    for one in scored:
        metric = {"BLEU": "bleu", "chrF2": "chrf"}[one["name"]]
        assert one["score"] == round(on_card[one["test_set"], metric], 2)
    assert on_card["valid", "bleu"] == on_card["colours", "bleu"], "the same sentences"


@pytest.mark.slow
def test_the_end_of_a_run_says_what_was_won_and_lost(folder, capfd):
    assert main(["train", "tune.yaml", "--run-dir", "runs/again", "--set", "training.max_steps=1"]) == 0
    said = capfd.readouterr().err
    assert "scoring the test sets: colours, numbers" in said
    for name in DOMAINS:
        line = next(line for line in said.splitlines() if f"{name}: bleu" in line)
        assert "(initial model" in line


def test_a_test_set_that_is_gone_costs_no_run(folder, tmp_path, capfd, monkeypatch):
    from seq2seq.errors import DataError
    from seq2seq.tasks.translation import TranslationTask

    def gone(*_):
        raise DataError("no such file")

    monkeypatch.setattr(TranslationTask, "score_test_sets", gone)
    assert main(["train", "tune.yaml", "--run-dir", str(tmp_path / "r"), "--set", "training.max_steps=1"]) == 0
    assert "the test sets are not scored: no such file" in capfd.readouterr().err


# -- between old and new ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_mixture_is_linear_and_its_ends_are_the_models(folder, capfd):
    old, new = state("runs/old"), state("runs/tune")
    mixtures = {"first": "1,0", "second": "0,1", "between": "3,1", "same": "0.75,0.25", "huge": "7.5e307,2.5e307"}
    for name, weights in mixtures.items():
        assert main(["average", "runs/old", "runs/tune", "--weights", weights, "-o", f"models/{name}"]) == 0
    first, second, between = state("models/first"), state("models/second"), state("models/between")
    for name in old:
        assert torch.equal(first[name], old[name])
        assert torch.equal(second[name], new[name])
        expected = (0.75 * old[name].double() + 0.25 * new[name].double()).float()
        torch.testing.assert_close(between[name], expected, atol=1e-9, rtol=2e-7)
        for same in ("models/same", "models/huge"):
            torch.testing.assert_close(state(same)[name], between[name], atol=1e-9, rtol=2e-7)
    assert load_model("models/between").tokenizers.fingerprint == load_model("runs/old").tokenizers.fingerprint
    card = ModelCard.load(folder / "models/between/README.md")
    assert card.data.pipeline_tag == "translation"
    assert "0.75 of `old`" in card.text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["runs/old", "runs/tune", "--weights", "0.5"], "1 weight for 2 models; give one per model"),
        (["runs/old", "runs/tune", "--weights", "0,0"], "above 0"),
        (["runs/old", "runs/tune", "--weights", "1,-1"], "not negative"),
        (["runs/old", "runs/tune", "--weights", "nan,1"], "not negative"),
        (["runs/old", "runs/tune", "--weights", "1e308,1e308"], "too large"),
        (["runs/old", "runs/tune", "--weights", "half,half"], "0.3,0.7"),
        (["runs/old", "other"], "another vocabulary"),
        (["other", "deeper"], "tensor"),
        (["other", "unscaled"], "scale_embedding"),
    ],
)
def test_what_cannot_be_mixed_is_one_line(folder, arguments, word, tmp_path, capfd):
    if not Path("other").exists():
        make_ours(Path("other"))
        make_ours(Path("deeper"), num_encoder_layers=3)
        make_ours(Path("unscaled"), scale_embedding=False)
    assert main(["average", *arguments, "-o", str(tmp_path / "mixed")]) == 2
    said = capfd.readouterr().err
    assert word in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "mixed").exists()


def test_dropout_and_positions_do_not_keep_models_apart(tmp_path, capfd):
    make_ours(tmp_path / "one", preset="small", dropout=0.1)
    make_ours(tmp_path / "other", dropout=0.3, max_length=100)
    mixed = tmp_path / "mixed"
    assert main(["average", str(tmp_path / "one"), str(tmp_path / "other"), "-o", str(mixed)]) == 0
    assert load_model(mixed).model.config == load_model(tmp_path / "one").model.config


@pytest.mark.slow
def test_frozen_weights_are_the_initial_ones_and_a_run_continues_to_the_same_bits(folder):
    """With Muon, a moving average and recomputation, which may change in between."""
    always = ["training.optimizer=muon", "training.freeze=[encoder.embedding]"]
    typed = [*always, "training.ema=0.9", "training.checkpoint_every=1", "training.validate_every=3"]

    def train(name: str, *settings: str) -> None:
        pairs = [part for setting in (*typed, *settings) for part in ("--set", setting)]
        assert main(["train", "tune.yaml", "--run-dir", f"runs/{name}", *pairs]) == 0

    train("whole", "training.max_steps=5")
    train("halves", "training.max_steps=2", "training.recompute=true")
    train("halves", "training.max_steps=5")
    ends = [
        load_checkpoint(latest_checkpoint(Path(f"runs/{name}/checkpoints"))).tensors for name in ("whole", "halves")
    ]
    initial = state("runs/old")
    for group in ("model", "optimizer", "ema"):
        assert ends[0][group].keys() == ends[1][group].keys()
        assert all(torch.equal(ends[0][group][name], ends[1][group][name]) for name in ends[0][group])
    frozen = {"encoder.embedding.tokens.weight"}
    assert not any(name.startswith(tuple(frozen)) for name in ends[0]["optimizer"])
    assert {name for name, weight in ends[0]["model"].items() if torch.equal(weight, initial[name])} == frozen


@pytest.mark.slow
def test_a_changed_vocabulary_is_that_of_the_run_which_continues_to_the_same_bits(folder, capfd):
    """Also where the cache was deleted; another setting stops the run by name."""
    vocabulary = "training.vocabulary={trim: true, extend: 5}"
    Path("new.en").write_text("\n".join(["red ねこ apple", "blue いぬ"] * 6))
    Path("new.de").write_text("\n".join(["rote ねこ Apfel", "blaue いぬ"] * 6))
    data = "data.train=[{source: colours.en, target: colours.de}, {source: new.en, target: new.de}]"
    typed = [vocabulary, data, "training.checkpoint_every=1", "training.validate_every=2"]

    def train(name: str, *settings: str) -> int:
        pairs = [part for setting in (*typed, *settings) for part in ("--set", setting)]
        return main(["train", "tune.yaml", "--run-dir", f"runs/{name}", *pairs])

    assert train("once", "training.max_steps=4") == 0
    said = capfd.readouterr().err
    assert "characters and 5 longer pieces" in said
    assert "training.vocabulary.trim: " in said
    assert train("twice", "training.max_steps=2") == 0
    for path in Path("runs/cache").glob("vocabulary-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert train("twice", "training.max_steps=4") == 0
    ends = [load_checkpoint(latest_checkpoint(Path(f"runs/{name}/checkpoints"))).tensors for name in ("once", "twice")]
    for group in ("model", "optimizer"):
        assert all(torch.equal(ends[0][group][name], ends[1][group][name]) for name in ends[0][group])
    best, old = (load_model(f"runs/{name}").tokenizers.target for name in ("once", "old"))
    lines = Path("new.de").read_text().splitlines()
    assert best.decode(best.encode(lines[0])) == lines[0]
    assert not any("<0x" in piece for piece in best.pieces(best.encode(lines[0])))
    assert any("<0x" in piece for piece in old.pieces(old.encode(lines[0])))
    assert {"ね", "こ", "い", "ぬ"} <= best.vocabulary.keys()
    assert len(best.vocabulary.keys() & old.vocabulary.keys()) < old.vocab_size
    assert "ね\t12\tね" in Path("runs/once/added-pieces.tsv").read_text()
    assert config_file.load(Path("runs/once/config.yaml")).tokenizer.vocab_size == best.vocab_size
    capfd.readouterr()
    typed[0] = "training.vocabulary={trim: true, extend: 6}"
    assert train("once", "training.max_steps=5") == 2
    assert "training.vocabulary.extend: was 5, now 6" in capfd.readouterr().err


@pytest.mark.slow
def test_a_wrong_name_ends_a_run_before_the_corpora_are_prepared(folder, capfd):
    typed = ["train", "tune.yaml", "--run-dir", "runs/typo", "--set", "training.freeze=[encodr]"]
    assert main(typed) == 2
    assert "no weight is called 'encodr'; did you mean 'encoder'?" in capfd.readouterr().err


# -- settings --------------------------------------------------------------------------------------


def test_the_preset_is_chosen_by_init_from_and_numbers_win():
    assert TrainingConfig().preset == "scratch"
    assert TrainingConfig().learning_rate == 1e-3
    tuned = TrainingConfig(init_from="x")
    assert (tuned.preset, tuned.learning_rate, tuned.patience) == ("finetune", 1e-4, 5)
    assert TrainingConfig(preset="finetune").schedule == "constant"
    wild = TrainingConfig(init_from="x", preset="scratch")
    assert (wild.learning_rate, wild.patience, wild.ema) == (1e-3, None, None)
    own = TrainingConfig(init_from="x", learning_rate=3e-5, patience=None)
    assert (own.learning_rate, own.patience, own.warmup_steps) == (3e-5, None, 100)
    assert own.model_fields_set == {"init_from", "learning_rate", "patience"}


def test_what_a_preset_fills_can_be_emptied_and_survives_the_file(folder):
    text = TUNE.replace("max_steps: 6", "max_steps: 6, patience: null, ema: null")
    config = config_file.parse(text, folder=folder)
    assert (config.training.patience, config.training.ema, config.training.preset) == (None, None, "finetune")
    assert config_file.parse(config_file.dump(config)) == config


def config_for(task="translation", model=None, search=None, **data):
    corpus = SourceConfig(source="a", target="b")
    return Config(
        task=task, source_language="en", target_language="de", data=DataConfig(train=corpus, valid=corpus, **data),
        training=TrainingConfig(init_from="x"), model=model or ModelConfig(), search=search or SearchConfig(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("marian")
    make_marian(folder, dropout=0.3, attention_dropout=0.2)
    return load_model(folder)


def test_a_foreign_model_says_what_is_left_out(marian):
    assert complete(config_for(), marian).model == marian.model.config
    assert complete(config_for(), marian).search == marian.description.search
    chosen = complete(config_for(model=ModelConfig(dropout=0.0), search=SearchConfig(beam_size=7)), marian)
    assert chosen.model == marian.model.config.model_copy(update={"dropout": 0.0})
    assert chosen.search == marian.description.search.model_copy(update={"beam_size": 7})
    assert complete(config_for("classification"), marian).model == marian.model.config


def test_written_settings_that_do_not_fit_those_of_the_model_are_one_mistake(tmp_path):
    initial = make_ours(tmp_path / "ours", search=SearchConfig(beam_size=1))
    with pytest.raises(ConfigError, match=r"search: n_best 3 is more than beam_size 1(.|\n)*training\.init_from"):
        complete(config_for(search=SearchConfig(n_best=3)), initial)
    both = SearchConfig(n_best=3, beam_size=4)
    assert complete(config_for(search=both), initial).search.beam_size == 4


def test_a_config_that_was_completed_says_the_same_again(marian):
    once = complete(config_for(), marian)
    again = Config.model_validate(once.model_dump())
    assert complete(again, marian) == again


def test_training_examples_fit_the_positions(marian):
    assert marian.model.config.max_length == 64
    assert complete(config_for(), marian).data.filters.max_length == 63
    assert complete(config_for("classification"), marian).data.filters.max_length == 62
    assert complete(config_for(filters={"max_length": 20}), marian).data.filters.max_length == 20
    longer = complete(config_for(model=ModelConfig(max_length=500)), marian)
    assert longer.model.max_length == 500, "sinusoids are computed, so there can be more of them"


def test_learned_positions_cannot_be_more(tmp_path):
    initial = make_ours(tmp_path / "ours", positions="learned")
    assert complete(config_for(), initial).model.max_length == 80
    with pytest.raises(ConfigError, match=r"model\.max_length: 500"):
        complete(config_for(model=ModelConfig(max_length=500)), initial)


def test_translation_does_not_start_from_a_classifier(tmp_path):
    initial = make_ours(tmp_path / "ours")
    described = initial.description.model_copy(update={"task": "classification", "labels": ("a", "b")})
    with pytest.raises(ConfigError, match=r"training\.init_from: a classifier has no decoder"):
        complete(config_for(), dataclasses.replace(initial, description=described))


@pytest.mark.slow
def test_texts_with_more_pieces_than_positions_do_not_stop_a_run(folder, tmp_path):
    """Those of training are filtered out and counted; of those of validation the loss sees the beginning."""
    for side in ("en", "de"):
        long = (folder / f"numbers.{side}").read_text().replace("\n", " ", 9)
        (tmp_path / f"long.{side}").write_text(long)
    changes = (
        "model.max_length=12", f"data.train={{source: {tmp_path}/long.en, target: {tmp_path}/long.de}}",
        f"data.valid={{source: {tmp_path}/long.en, target: {tmp_path}/long.de}}", "training.max_steps=2",
    )  # fmt: skip
    sets = [part for change in changes for part in ("--set", change)]
    assert main(["train", "old.yaml", "--run-dir", str(tmp_path / "run"), *sets]) == 0
    assert config_file.load(tmp_path / "run/config.yaml", check_files=False).data.filters.max_length == 11


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_config_is_in_order(path, real_data, tmp_path, monkeypatch):
    """All but the corpora and models that are not here."""
    monkeypatch.setenv("S2S_DATA", str(real_data))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/tatoeba-en-de").mkdir(parents=True)
    for made in ("forward", "backward"):  # by models, with the command file of the recipe
        (tmp_path / "multi30k-pairs" / made).mkdir(parents=True)
        (tmp_path / "multi30k-pairs" / made / "augment.json").write_text("{}")
    config = config_file.load(path)
    assert all(file.exists() for source in config.data.train for _, file in source.files())
    if config.training.init_from:
        assert config.training.preset == "finetune"
        assert len(config.data.test) == len(config.data.train) == 2
