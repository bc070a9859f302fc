"""`s2s distill` with teachers of many languages: every step asks them in the direction of the student's config.

The teachers are a run of many directions over number words, and a folder of NLLB.
"""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from support.foreign_models import LANGUAGES, SOURCE, TARGET, make_marian
from support.many_directions import LEARNED, train
from support.multilingual_models import make_multilingual

from seq2seq.cli import main
from seq2seq.inference.translator import Translator
from seq2seq.store.model_folder import load_model
from seq2seq.workflows.distill.request import Distillation
from seq2seq.workflows.distill.steps import Student

transformers = pytest.importorskip("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

CONFIG = """
source_language: en
target_language: fr
data:
  train: {source: small.en, target: small.fr}
  valid: {source: valid.en, target: valid.fr}
  num_workers: 1
tokenizer: {vocab_size: 300}
model: {preset: tiny, d_model: 16, d_ff: 32, num_encoder_layers: 1, num_decoder_layers: 1, max_length: 64}
training: {max_steps: 2, batch_tokens: 512, warmup_steps: 1, validate_every: 2, checkpoint_every: 2, threads: 1}
search: {beam_size: 1}
"""


def student(name: str, **changes: str) -> str:
    """Write a config with other words for some of its words; its name."""
    text = CONFIG
    for word, other in changes.items():
        text = text.replace(word, other)
    Path(name).write_text(text, encoding="utf-8")
    return name


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a run of many directions, a folder of NLLB, one of OPUS-MT with two targets, and corpora."""
    place = tmp_path_factory.mktemp("teachers")
    train(place, "decoder")
    make_multilingual(place / "nllb", "nllb")
    make_marian(place / "opus", languages=LANGUAGES)
    for side, lines in (("en", SOURCE), ("de", TARGET)):
        (place / f"heart.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (place / f"few.{side}").write_text("\n".join(lines[:3]) + "\n", encoding="utf-8")
    return place


@pytest.fixture(autouse=True)
def _inside(place, monkeypatch):
    monkeypatch.delenv("S2S_DATA", raising=False)
    monkeypatch.chdir(place)


def directions_asked(monkeypatch) -> list[tuple[Path, str | None, str | None]]:
    """A list that gets each model folder that is opened to translate, and the direction it is opened in."""
    asked, load = [], Translator.load.__func__

    def recorded(cls, *paths, **options):
        translator = load(cls, *paths, **options)
        about = translator.description
        asked.extend((Path(path).resolve(), about.source_language, about.target_language) for path in paths)
        return translator

    monkeypatch.setattr(Translator, "load", classmethod(recorded))
    return asked


def pairs_in(folder: Path) -> list[tuple[str, str]]:
    lines = [line for path in sorted(folder.glob("part-*.gz")) for line in gzip.open(path, "rt")]
    return [(row["source"], row["target"]) for row in map(json.loads, lines)]


@pytest.mark.slow
@pytest.mark.parametrize("teacher", ["run", "nllb"])
def test_each_step_asks_the_teacher_in_the_direction_of_the_student(teacher, place, monkeypatch, capfd, request):
    """Law: whenever the teacher is opened, it has this direction; its pairs and its scores are those of the commands
    that are told the direction."""
    if teacher == "run":
        Path("learned").mkdir()
        shutil.copytree(train(place / "learned", "source", *LEARNED) / "best", "taught")
        config, names, test = student("en-fr.yaml"), ("en", "fr"), ("valid.en", "valid.fr")
    else:
        shutil.copytree(request.getfixturevalue("trained_nllb"), "taught")
        changes = {"small": "heart", "valid.": "few.", "fr": "de"}
        config, names, test = student("en-de.yaml", **changes), ("eng_Latn", "deu_Latn"), ("few.en", "few.de")
    asked, made = directions_asked(monkeypatch), Path(f"made-{teacher}")
    assert main(["distill", "taught", config, "-o", str(made), "--force"]) == 0
    taught = Path("taught").resolve()
    directions = [sides for folder, *sides in asked if folder == taught]
    assert len(directions) == 3  # pairs, and scores in float32 and in int8
    assert all(sides == list(names) for sides in directions)
    languages = ["--from", "English", "--to", names[1]]
    text = ["--text", str(made / "source.txt.gz"), "--held-out", test[0]]
    command = ["augment", "taught", *text, "--kind", "forward", *languages, "--force", "-o", f"alone-{teacher}"]
    assert main(command) == 0
    assert pairs_in(made / "pairs") == pairs_in(Path(f"alone-{teacher}"))
    assert len(pairs_in(made / "pairs")) > 3
    systems = json.loads((made / "distill.json").read_text())["steps"]["measure"]["systems"]
    for system, more in (("float32", []), ("int8", ["--quantization", "int8"])):
        capfd.readouterr()
        scored = ["bleu", "--model", "taught", "--source", test[0], "--reference", test[1], "-m", "chrf", "-f", "json"]
        assert main([*scored, *languages, *more]) == 0
        (figures,) = systems[f"teacher, {system}"]["figures"].values()
        assert json.loads(capfd.readouterr().out)["score"] == pytest.approx(figures["scores"]["chrf"], abs=0.06)
        assert figures["scores"]["chrf"] > 50  # in another direction nothing is right
    licence = "Licence of taught: cc-by-nc-4.0."
    assert (licence in (made / "report.html").read_text(encoding="utf-8")) == (teacher == "nllb")
    made_student = load_model(made / "model")
    assert made_student.tokenizers.choices == {}
    assert (made_student.description.source_language, made_student.description.target_language) == (
        "en",
        config[3:5],
    )
    shutil.rmtree("taught")


DIRECTIONS = {
    "the names of the config are those of the teacher": ("nllb", {}, {}, ("en", "fr")),
    "the user names what the teacher has twice": ("nllb", {"target_language: fr": "target_language: zh"},
                                              {"target_language": "zho_Hans"}, ("en", None)),
    "both are named": ("nllb", {}, {"source_language": "eng_Latn", "target_language": "fr"}, (None, None)),
    "sources need no tag": ("opus", {"target_language: fr": "target_language: de"}, {}, (None, "de")),
    "a zero-shot direction": ("run", {"source_language: en": "source_language: de"}, {}, ("de", "fr")),
}  # fmt: skip


@pytest.mark.parametrize("case", DIRECTIONS)
def test_the_direction_is_that_of_the_config(case, place, caplog):
    teacher, changes, loading, expected = DIRECTIONS[case]
    request = Distillation((Path(teacher),), Path(student("one.yaml", **changes)), Path("new"), loading=loading)
    keys = ("source_language", "target_language")
    assert Student(request)._direction() == {key: name for key, name in zip(keys, expected, strict=True) if name}
    zero_shot = "run: the model was trained in en-de, de-en, en-fr, not in de-fr (zero-shot); "
    assert (zero_shot in caplog.text) == (case == "a zero-shot direction")


MISTAKES = {
    "no such language": ("run", {"target_language: fr": "target_language: it"}, [], "run: target_language it: not a "
                         "language of the model; it has de, en, fr; its directions are en-de, de-en, en-fr"),
    "no such source": ("run", {"source_language: en": "source_language: fr"}, [], "run: source_language fr: not a "),
    "a near name": ("nllb", {"target_language: fr": "target_language: germn"}, [], "nllb: target_language germn: not a "
                    "language of the model; did you mean 'german'"),
    "two such languages": ("nllb", {"target_language: fr": "target_language: zh"}, [], "nllb: target_language zh: the "
                           "model has several such languages: zho_Hans, zho_Hant; name one"),
    "an option and the config": ("nllb", {}, ["--to", "de"], "nllb: translates eng_Latn-deu_Latn, but the student "
                                 "translates en-fr; name another teacher or config"),
    "an option": ("nllb", {}, ["--to", "germn"], "nllb: --to germn: not a language of the model"),
    "another target of OPUS-MT": ("opus", {}, [], "opus: target_language fr: not a language of the model; it has deu"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_teacher_without_the_direction_is_refused_in_one_line(mistake, place, capsys):
    teacher, changes, options, message = MISTAKES[mistake]
    assert main(["distill", teacher, student("one.yaml", **changes), *options, "-o", "new"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not Path("new").exists()


def test_a_student_has_no_tokenizer_with_tags(place):
    """Also where the teacher's are in source.spm, as those of OPUS-MT are."""
    config = student("plain.yaml", **{"tokenizer: {vocab_size: 300}": ""})
    Path("folder/pairs").mkdir(parents=True, exist_ok=True)
    Path("folder/pairs/augment.json").write_text("{}")
    for teacher in ("run", "nllb", "opus"):
        made = Student(Distillation((Path(teacher),), Path(config), Path("folder")))
        assert made.student_config().tokenizer.init_from is None
