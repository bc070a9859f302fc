"""How `s2s serve` starts: on which addresses, and what keeps it from starting."""

import sys

import pytest
from support.serving import ask_inside, models_and_keys, new_process, serving

from seq2seq.cli import main
from seq2seq.serve.glossaries import Glossaries
from seq2seq.serve.guard import origin_of
from seq2seq.serve.limits import Limits
from seq2seq.serve.models import Models, load
from seq2seq.serve.server import Access
from seq2seq.serve.service import Service


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return models_and_keys(tmp_path_factory.mktemp("serve"))


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder / "one", start=new_process) as served:
        yield served


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("one --port {taken}", "in use"),
        ("one --host nowhere.invalid --open", "nowhere.invalid"),
        ("one --host 0.0.0.0", "--key-file"),
        ("one --host 0.0.0.0 --open --key-file keys", "--open"),
        ("one --key-file missing", "missing"),
        ("one --key-file empty", "no key"),
        ("one --key-file spaced", "space"),
        ("one --key-file none", "missing value"),
        ("one --port 70000", "--port"),
        ("one --deadline 0", "--deadline"),
        ("missing", "missing"),
        ("labels --glossary terms.tsv", "no translation model"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line(folder, server, typed, words, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (folder / "empty").write_text("# no key\n\n")
    (folder / "spaced").write_text("two words\n")
    (folder / "none").write_text("None\n")
    (folder / "terms.tsv").write_text("man\tMann\n")
    assert (
        main(["serve", *typed.format(taken=server.port).split(), *([] if "--port" in typed else ["--port", "0"])]) == 2
    )
    captured = capsys.readouterr()
    assert words in captured.err
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


@pytest.mark.skipif(sys.platform != "linux", reason="one loopback address is enough elsewhere")
def test_it_starts_on_other_addresses(folder):
    with serving(folder / "one", "--host", "0.0.0.0", "--open", start=new_process) as served:
        assert served.ask("/health", Host="anything.example").status == 200
        assert served.stop() == 0


NAMES = {
    "proxy.example:8080": "proxy.example",
    "Other.Example": "other.example:8080",
    "bücher.example": "xn--bcher-kva.example",
    "[FE80::1]:5000": "[fe80::1]",
    "[fd00:0:0::5]": "[fd00::5]:5000",
}
ORIGINS = {
    "https://example.org/": "https://example.org",
    "HTTPS://Upper.org:443": "https://upper.org",
    "http://example.org:8080": "http://example.org:8080",
    "https://bücher.example": "https://xn--bcher-kva.example",
    "http://[FD00:0::6]:80": "http://[fd00::6]",
}


def test_a_name_is_accepted_however_it_is_written(folder):
    """Requests contain the forms that browsers and proxies send; an option that matches none of them has no effect."""
    typed = [word for name in NAMES for word in ("--allow-host", name)]
    typed += [word for origin in ORIGINS for word in ("--cors-origin", origin)]
    with serving(folder / "one", *typed, start=new_process) as served:
        for name in NAMES.values():
            assert served.ask("/health", Host=name).status == 200
        for origin in ORIGINS.values():
            answer = served.ask("/health", Origin=origin)
            assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, origin)
        assert served.ask("/health", Host="example").status == 403
        assert served.ask("/health", Origin="http://example.org").status == 403
    assert origin_of("*") == "*"


HOSTS = {
    "192.0.2.2": ["192.0.2.2"],
    "fd00::2": ["[fd00::2]", "[FD00::2]", "[fd00:0:0:0::2]"],
    "FD00:0:0:0:0:0:0:2": ["[fd00::2]"],
    "fe80::2%eth0": ["[fe80::2]"],
    "::": ["[::]"],
    "server.example": ["server.example", "SERVER.example"],
    "bücher.example": ["xn--bcher-kva.example"],
    "127.0.0.2": ["127.0.0.2", "localhost", "127.0.0.1", "[::1]"],
    "0:0:0:0:0:0:0:1": ["[::1]", "[0:0::1]", "localhost", "127.0.0.1"],
}


@pytest.mark.parametrize("names", [[], ["t.example"]])
@pytest.mark.parametrize("host", HOSTS)
def test_the_address_in_the_log_is_accepted(host, names):
    """It is also one of the names if others are given, however the address and the name in Host are written."""
    service = Service(Models([]), Limits())

    def is_refused(name: str) -> bool:
        first = ask_inside(service, "/v1/translate", b"{}", access=Access(host, names=names), host=name)[0]
        return first["status"] == 403

    is_open = not names and not host.startswith(("127.", "0:"))
    for name in [*HOSTS[host], *names]:
        assert not is_refused(name)
        assert not is_refused(f"{name}:5000")
    for name in ("other.example", "[fd00::3]", "192.0.2.3"):
        assert is_refused(name) is not is_open


@pytest.mark.parametrize(
    "typed",
    ["--allow-host http://foo.org", "--allow-host foo.org/path", "--cors-origin example.org",
     "--cors-origin https://example.org/page", "--cors-origin https://", "--cors-origin null"],
)  # fmt: skip
def test_a_name_that_no_request_can_have_is_refused(folder, monkeypatch, capsys, typed):
    monkeypatch.chdir(folder)
    assert main(["serve", "one", "--port", "0", *typed.split()]) == 2
    message = capsys.readouterr().err
    assert typed in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("terms.tsv", "glossary terms: for every request that names no glossary"),
        ("en-de=terms.tsv", "glossary en-de: for requests of en-de that name no glossary"),
        ("en_de=terms.tsv", "glossary en_de: for requests of en-de that name no glossary"),
        ("de-en=terms.tsv", "glossary de-en: for requests that name it"),
        ("en-ed=terms.tsv", "glossary en-ed: for requests that name it"),
    ],
)
def test_the_log_says_to_what_a_glossary_applies(folder, monkeypatch, caplog, given, told):
    """A name with a mistake is that of no direction; its terms would be missing everywhere without a word."""
    monkeypatch.chdir(folder)
    (folder / "terms.tsv").write_text("man\tMann\n")
    with caplog.at_level("INFO"):
        Glossaries.read([given]).fitting(load([folder / "one"], {}, {}, None))
    assert told in caplog.messages
