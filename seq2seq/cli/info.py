"""`s2s info`: what a model is, from its folder."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli.options import ANY_PATH, chosen_model
from seq2seq.errors import some_of

if TYPE_CHECKING:
    from seq2seq.description import ModelDescription
    from seq2seq.store.model_folder import LoadedModel
    from seq2seq.text.tokenizer import TokenizerPair


@click.command("info", short_help="Say what a model is.", epilog="Example: s2s info runs/demo --format json")
@click.argument("model", required=False, type=ANY_PATH)
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(model: Path | None, form: str) -> None:
    """Say what MODEL [default: the newest run's best] is: architecture, parameters, vocabulary, languages, scores."""
    from seq2seq.interop.ctranslate2 import is_ctranslate2
    from seq2seq.store.model_folder import load_model

    folder = chosen_model(model)
    described = _describe_converted(folder) if is_ctranslate2(folder) else _describe(load_model(folder))
    if form == "json":
        click.echo(json.dumps(described, indent=2, ensure_ascii=False))
        return
    rows = list(_rows(described))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        click.echo(f"{name:<{width}}  {value}")


def _describe(loaded: "LoadedModel") -> dict[str, Any]:
    description = loaded.description
    weights = loaded.files["model.safetensors"]
    values = _of_any_model(loaded.folder, description, loaded.tokenizers)
    if description.task == "classification":
        values["labels"] = list(description.displayed_labels)
        values["vocabulary"] = {"source": loaded.tokenizers.source.vocab_size}
        values["classifier"] = description.classifier.model_dump(mode="json")
    return values | {
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "bytes": sum(parameter.numel() * parameter.element_size() for parameter in loaded.model.parameters()),
        "weights_sha256": weights["sha256"],
    }


def _describe_converted(folder: Path) -> dict[str, Any]:
    from seq2seq.files import record
    from seq2seq.interop.ctranslate2 import WEIGHTS, read_description

    description, tokenizers, quantization = read_description(folder)
    weights = record(folder / WEIGHTS)
    return _of_any_model(folder, description, tokenizers) | {
        "format": "CTranslate2",
        "quantization": quantization,
        "bytes": weights["size"],
        "weights_sha256": weights["sha256"],
    }


def _of_any_model(folder: Path, description: "ModelDescription", tokenizers: "TokenizerPair") -> dict[str, Any]:
    """What there is to say of every model, as plain values."""
    values: dict[str, Any] = {"folder": str(folder), "task": description.task}
    if description.task == "translation":
        values |= description.model_dump(mode="json", include={"source_language", "target_language", "search"})
    sizes = {"source": tokenizers.source.vocab_size, "target": tokenizers.target.vocab_size}
    return values | {
        "vocabulary": {"shared": tokenizers.shared, **sizes},
        "tokenizer_fingerprint": tokenizers.fingerprint,
        "model": description.model.model_dump(mode="json"),
        "metrics": description.metrics,
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
