"""The card of a mean of models names each of them with its run."""

from pathlib import Path

from support.our_models import make_ours

from seq2seq.store.averaging import average_models


def test_the_card_names_each_member_with_its_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    members = [Path("runs/first/best"), Path("runs/second/best"), Path("model")]
    for member in members:
        make_ours(member)
    average_models(members, Path("mean"), [2, 1, 1])
    card = Path("mean/README.md").read_text()
    assert all(f"- {line}" in card for line in ("0.5 of `first/best`", "0.25 of `second/best`", "0.25 of `model`"))
