"""Run folders as `s2s train` leaves them, without a training."""

import json
from pathlib import Path

from seq2seq.files import record


def make_run(folder: Path, bleu=None, dropout=0.1, finished="max_steps 40 reached", lines=(), config="") -> Path:
    """A run folder as training leaves it, without weights."""
    checkpoint = folder / "checkpoints" / "step_00000040"
    checkpoint.mkdir(parents=True)
    text = f"seed: 1\ndata: {{train: {{source: a.en}}}}\nmodel: {{dropout: {dropout}}}\ntraining: {{max_steps: 40}}\n"
    (folder / "config.yaml").write_text(config or text)
    records = [{"step": step, "seconds": 90.0 * step, "epoch": 0.1, "loss": 2.0} for step in (20, 40)]
    (folder / "metrics.jsonl").write_text("".join(f"{line}\n" for line in [*map(json.dumps, records), *lines]))
    (checkpoint / "state.json").write_text(json.dumps({"step": 40, "run": {"finished": finished}}))
    (checkpoint / "model.safetensors").write_bytes(b"0" * 1000)
    (folder / "identity.json").write_text(json.dumps({"data.train": "abc"}))
    if bleu is not None:
        (folder / "best").mkdir()
        metrics = {"step": 40, "bleu": bleu, "bleu_se": 0.5, "valid_loss": 100 - bleu}
        (folder / "best" / "source.spm").write_bytes(b"pieces")
        files = {"source.spm": record(folder / "best" / "source.spm")}
        (folder / "best" / "config.json").write_text(json.dumps({"metrics": metrics, "files": files}))
        (folder / "best" / "generation_config.json").write_text(json.dumps({"search": {"beam_size": 5}}))
        score = {"dataset": "news", "metric": "chrf", "value": 2 * bleu, "signature": ""}
        (folder / "test_scores.json").write_text(json.dumps({"scores": [score]}))
    return folder
