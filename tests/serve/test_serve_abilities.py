"""Models with different abilities on one server: each request goes to a model that can answer it. About 20 s."""

import asyncio
import itertools

import pytest
from support.our_models import make_many
from support.serving import serving

from seq2seq.cli import main
from seq2seq.serve.glossaries import Glossaries
from seq2seq.serve.limits import Limits, Refusal
from seq2seq.serve.models import Models, load
from seq2seq.serve.schemas import TranslateRequest
from seq2seq.serve.service import Service

# Requests that need alignments, and some that do not.
NEEDING = [
    {"details": ["words"]}, {"details": ["sentences"]}, {"format": "html"}, {"format": "plain"},
    {"glossary": {"entries": [["man", "Mann"]]}}, {"glossary": {"entries": [], "names": ["mine"]}},
    {"glossary": "mine"}, {"glossary": ["mine"]},
]  # fmt: skip
OTHERS = [{}, {"glossary": []}, {"glossary": {"entries": []}}, {"split": "sentences"}, {"alternatives": 1}]


@pytest.fixture(scope="module")
def place(folder):
    """Beside the other models: `fast`, a CTranslate2 folder of `one`, and `many`, which has its direction too."""
    assert main(["convert", str(folder / "one"), "--to", "ctranslate2", "-o", str(folder / "fast"), "--force"]) == 0
    make_many(folder / "many", ["en"], ["de", "fr"], "both")
    return folder


@pytest.fixture(scope="module")
def served(place):
    """Each of these models, loaded once."""
    loaded = {name: load([place / name], {"threads": 1}, {"device": "cpu"}) for name in ("fast", "one", "many")}
    return {name: next(iter(models)) for name, models in loaded.items()}


def answering(service, fields) -> str:
    """The name of the model that answers a request."""

    async def ask():
        answers = service.accept(TranslateRequest(text="a man", target="de", **fields))
        service.leave(answers)
        return answers.model.name

    return asyncio.run(ask())


@pytest.mark.parametrize("names", [*itertools.permutations(["fast", "one", "many"]), ("fast", "many"), ("fast",)])
def test_a_request_goes_to_the_first_model_that_can_answer_it(served, place, names):
    """Without `model`; a model that is named answers or refuses, and what needs no alignments is as before."""
    (place / "mine.tsv").write_text("man\tMann\n")
    service = Service(Models(served[name] for name in names), Limits(), Glossaries.read([f"mine={place / 'mine.tsv'}"]))
    service.worker.start()
    ordered = sorted(names, key=lambda name: name == "many")  # a model of one pair comes first
    able = next((name for name in ordered if name != "fast"), None)
    for fields in OTHERS:
        assert answering(service, fields) == ordered[0]
    for fields in NEEDING:
        for named in [{}, *({"model": name} for name in names)]:
            expected = named.get("model", able)
            if expected in (None, "fast"):
                with pytest.raises(Refusal) as refused:
                    answering(service, {**fields, **named})
                assert refused.value.code == "unsupported"
            else:
                assert answering(service, {**fields, **named}) == expected
    service.queue.close()


def test_models_tells_the_abilities_of_each(place):
    """The abilities of the server are the ones that any of its models has."""
    with serving(place / "fast", place / "one", place / "labels") as server:
        told = server.ask("/v1/models").json
        able = {one["name"]: one.get("abilities") for one in told["models"]}
        shared = {name: told["abilities"][name] for name in ("formats", "details", "glossary")}
        assert able == {
            "fast": {"formats": ["text"], "details": [], "glossary": False}, "one": shared, "labels": None
        }  # fmt: skip
        assert shared["glossary"] is True
        page = {"q": "<p>a man</p>", "source": "en", "target": "de", "format": "html"}
        answer = server.ask("/translate", page)
        assert (answer.status, answer.json["translatedText"][:3]) == (200, "<p>")
