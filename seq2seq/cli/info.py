"""`s2s info`: what a model is, from its folder."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from seq2seq.cli.options import ANY_PATH, chosen_model
from seq2seq.errors import some_of


@click.command("info", short_help="Say what a model is.", epilog="Example: s2s info runs/demo --format json")
@click.argument("model", required=False, type=ANY_PATH)
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(model: Path | None, form: str) -> None:
    """Say what MODEL [default: the newest run's best] is: architecture, parameters, vocabulary, languages, scores."""
    from seq2seq.interop.ctranslate2 import is_ctranslate2
    from seq2seq.store.checkpoint import load_model

    folder = chosen_model(model)
    described = _describe_converted(folder) if is_ctranslate2(folder) else _describe(load_model(folder))
    if form == "json":
        click.echo(json.dumps(described, indent=2, ensure_ascii=False))
        return
    rows = list(_rows(described))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")


def _describe(loaded: Any) -> dict[str, Any]:
    """What there is to say, as plain values."""
    tokenizers = loaded.tokenizers
    described: dict[str, Any] = {"folder": str(loaded.folder), "task": loaded.task}
    if loaded.task == "translation":
        described |= _translation(loaded)
    else:
        names = loaded.info.get("label_names", {})
        described["labels"] = [names.get(label, label) for label in loaded.labels]
        described["vocabulary"] = {"source": tokenizers.source.vocab_size}
        described["classifier"] = loaded.info.get("classifier", {})
    parameters = list(loaded.model.parameters())
    return described | {
        "tokenizer_fingerprint": tokenizers.fingerprint,
        "model": loaded.info["model"],
        "parameters": sum(parameter.numel() for parameter in parameters),
        "bytes": sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        "metrics": loaded.info.get("metrics", {}),
        "weights_sha256": loaded.info["files"]["model.safetensors"]["sha256"],
    }


def _translation(model: Any) -> dict[str, Any]:
    """What a translation model is, in our format or in CTranslate2's."""
    tokenizers = model.tokenizers
    return {
        "source_language": model.source_language,
        "target_language": model.target_language,
        "vocabulary": {
            "shared": tokenizers.shared,
            "source": tokenizers.source.vocab_size,
            "target": tokenizers.target.vocab_size,
        },
        "search": model.search.model_dump(mode="json"),
    }


def _describe_converted(folder: Path) -> dict[str, Any]:
    from seq2seq.interop.ctranslate2 import WEIGHTS, read_description
    from seq2seq.tensors import record

    converted = read_description(folder)
    weights = record(folder / WEIGHTS)
    return {
        "folder": str(folder),
        "task": "translation",
        "format": "CTranslate2",
        "quantization": converted.quantization,
        **_translation(converted),
        "tokenizer_fingerprint": converted.tokenizers.fingerprint,
        "model": None if converted.model is None else converted.model.model_dump(mode="json"),
        "bytes": weights["size"],
        "metrics": {},
        "weights_sha256": weights["sha256"],
    }


def _rows(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "model", described["folder"]
    if described["task"] == "translation":
        yield "task", f"translation, {described['source_language']} to {described['target_language']}"
    else:
        yield "task", f"classification, labels {some_of(described['labels'])}"
    size = f"{described['bytes'] / 2**20:,.1f} MiB"
    if "format" in described:
        yield "format", f"{described['format']}, {described['quantization']} ({size}); for s2s translate and s2s bleu"
    else:
        yield "parameters", f"{described['parameters']:,} ({size})"
    if described["model"] is not None:
        yield "architecture", _architecture(described["model"], described["task"])
    yield "vocabulary", _vocabulary(described["vocabulary"])
    yield "tokenizer", described["tokenizer_fingerprint"]
    for name, value in described["metrics"].items():
        yield name, f"{value:.4g}" if isinstance(value, float) else str(value)
    yield "weights", f"sha256 {described['weights_sha256'][:16]}"


def _architecture(model: Mapping[str, Any], task: str) -> str:
    layers = [model["num_encoder_layers"]] + ([model["num_decoder_layers"]] if task == "translation" else [])
    head_dim = model["head_dim"] or model["d_model"] // model["num_heads"]
    return (
        f"{'+'.join(map(str, layers))} layers, d_model {model['d_model']}, "
        f"{model['num_heads']} heads of {head_dim}, d_ff {model['d_ff']}, {model['activation']}, "
        f"{model['norm_position']}-norm ({model['norm']}), {model['positions']} positions"
        + (f", embeddings tied: {model['tied_embeddings']}" if task == "translation" else "")
    )


def _vocabulary(sizes: Mapping[str, Any]) -> str:
    if "target" not in sizes:
        return f"{sizes['source']:,} pieces"
    if sizes["shared"]:
        return f"{sizes['source']:,} pieces, shared"
    return f"{sizes['source']:,} source and {sizes['target']:,} target pieces"
