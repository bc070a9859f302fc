"""The command `s2s info`: a description of a model, and the cache of models that were converted for CTranslate2."""

import hashlib
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seq2seq.cli import options
from seq2seq.cli.commands import Command
from seq2seq.errors import counted, some_of
from seq2seq.lines import aligned, shown_json, shown_name

if TYPE_CHECKING:
    from seq2seq.inference.conversion_cache import CachedModel
    from seq2seq.text.tokenizer import TokenizerPair

NOT_RECORDED = "not recorded"


@click.command(cls=Command, epilog="Example: s2s info runs/demo --format json")
@click.argument("model", required=False, type=options.ANY_PATH)
@click.option("--cache", "of_cache", is_flag=True, help="List the converted models in the cache.")
@click.option("--clear-cache", "clears_cache", is_flag=True, help="Delete the converted models in the cache.")
@options.format_option
def command(model: Path | None, of_cache: bool, clears_cache: bool, form: str) -> None:
    """Describe MODEL: architecture, parameters, vocabulary, languages, scores [default: the newest run].

    On CPUs, models are converted for CTranslate2 at their first use, into $XDG_CACHE_HOME/seq2seq (~/.cache/seq2seq if
    that is not set). A deleted conversion is made again when its model is used. Conversions that are not used for 30
    days are deleted automatically.
    """
    if of_cache or clears_cache:
        _show_cache(model, of_cache, clears_cache, form)
        return
    described = _describe(options.chosen_model(model))
    if form == "json":
        click.echo(shown_json(described, indent=2))
        return
    for line in aligned(list(_rows(described))):
        click.echo(line)


def _show_cache(model: Path | None, lists: bool, clears: bool, form: str) -> None:
    from seq2seq.inference.conversion_cache import cached_models, clear

    if lists and clears:
        raise click.UsageError("--cache lists the cache and --clear-cache deletes it; give one of them")
    if model is not None:
        raise click.UsageError(f"--{'clear-' * clears}cache is for all converted models; it takes no MODEL")
    entries = cached_models()
    if lists:
        _list_cache(entries, form)
        return
    options.only_for("s2s info MODEL and s2s info --cache", "form")
    clear()
    remaining = {entry.path for entry in cached_models()}
    freed = sum(entry.bytes for entry in entries if entry.path not in remaining)
    removed = counted(len([entry for entry in entries if entry.path not in remaining]), "converted model")
    kept = f"; kept {len(remaining)}, which other processes are opening" if remaining else ""
    click.echo(f"deleted {removed} ({freed / 2**20:,.1f} MiB){kept}")


def _list_cache(entries: Sequence["CachedModel"], form: str) -> None:
    rows = [
        {
            "model": NOT_RECORDED if entry.model is None else shown_name(str(entry.model)),
            "quantization": entry.quantization,
            "bytes": entry.bytes,
            "last_used": datetime.fromtimestamp(entry.used).isoformat(" ", "seconds"),
            "path": str(entry.path),
        }
        for entry in entries
    ]
    if form == "json":
        click.echo(shown_json(rows, indent=2))
        return
    if not rows:
        click.echo("the cache has no converted models")
        return
    sizes = [f"{row['bytes'] / 2**20:,.1f} MiB" for row in rows]
    columns = [["model", "quantization", "size", "last used"]]
    columns += [
        [row["model"], row["quantization"], size, row["last_used"]] for row, size in zip(rows, sizes, strict=True)
    ]
    for line in aligned(columns):
        click.echo(line)


def _describe(folder: Path) -> dict[str, Any]:
    """Return the description of the model in a folder, as plain values."""
    from seq2seq.files import record
    from seq2seq.interop.ctranslate2 import WEIGHTS, is_ctranslate2, read_description
    from seq2seq.store.footprint import footprint
    from seq2seq.store.model_folder import load_outline

    if is_ctranslate2(folder):
        description, tokenizers, quantization = read_description(folder)
        weights = record(folder / WEIGHTS)
        sizes = {"format": "CTranslate2", "quantization": quantization, "bytes": weights["size"]}
    else:
        loaded = load_outline(folder)
        description, tokenizers = loaded.description, loaded.tokenizers
        shards = [facts["sha256"] for name, facts in loaded.files.items() if name.endswith(".safetensors")]
        joined = "".join(shards).encode()
        weights = {"sha256": shards[0] if len(shards) == 1 else hashlib.sha256(joined).hexdigest()}
        parameters = list(loaded.model.parameters())
        sizes = {
            "parameters": sum(parameter.numel() for parameter in parameters),
            "bytes": sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        }
        if needs := footprint(loaded.folder):
            sizes["memory"] = {"float32": needs.loaded, "int8": needs.converted, "training": needs.trained()}
    vocabulary: dict[str, int | bool] = {"source": tokenizers.source.vocab_size}
    if description.task == "translation":
        of_task = description.model_dump(mode="json", include={"source_language", "target_language", "search"})
        vocabulary |= {"target": tokenizers.target.vocab_size, "shared": tokenizers.shared}
        of_task["languages"] = sorted(tokenizers.source.tags)
        of_task["needs_direction"] = tokenizers.needs_direction
        known = _directions(tokenizers, description.directions) or description.directions
        of_task["directions"] = {name: name in description.directions for name in known}
        of_task["license"] = description.license
    else:
        of_task = description.model_dump(mode="json", include={"classifier"})
        of_task["labels"] = list(description.displayed_labels)
    return {
        "folder": str(folder),
        "task": description.task,
        **of_task,
        "vocabulary": vocabulary,
        "tokenizer_fingerprint": tokenizers.fingerprint,
        "model": description.model.model_dump(mode="json"),
        **sizes,
        "metrics": description.metrics,
        "weights_sha256": weights["sha256"],
    }


def _directions(tokenizers: "TokenizerPair", trained: Collection[str]) -> list[str]:
    """Return the names of all directions of a model that was trained in some of them; empty for other models.

    A direction from a language into the same one is listed only if the model was `trained` in it.
    """
    from seq2seq.languages import direction_name

    if (languages := getattr(tokenizers, "languages", None)) is None:
        return []
    pairs = itertools.product(languages.source, languages.target)
    return [name for one, two in pairs if (name := direction_name((one, two))) in trained or one != two]


def _rows(described: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from seq2seq.store.footprint import shown_bytes

    yield "model", described["folder"]
    if described.get("directions"):
        trained, possible = sum(described["directions"].values()), len(described["directions"])
        of_all = "" if trained == possible else f" of {possible}"
        yield "task", f"translation, trained in {trained}{of_all} directions"
    elif described["task"] == "translation":
        sides = [described["source_language"], described["target_language"]]
        yield "task", "translation" + (f", {sides[0] or '?'} to {sides[1] or '?'}" if any(sides) else "")
    else:
        yield "task", f"classification, labels {some_of(described['labels'])}"
    if described.get("languages"):
        sides = "between" if described["needs_direction"] else "into"
        yield "languages", f"{sides} {', '.join(described['languages'])}"
    metrics = described["metrics"]
    for name, is_trained in described.get("directions", {}).items():
        scores = [f"{key.partition('.')[0]} {value:.4g}" for key, value in metrics.items() if key.endswith(f".{name}")]
        yield f"  {name}", ", ".join(scores) if scores else "not validated" if is_trained else "zero-shot"
    if described.get("license"):
        yield "licence", described["license"]
    size = shown_bytes(described["bytes"])
    if "format" in described:
        yield "format", f"{described['format']}, {described['quantization']} ({size}); for s2s translate and s2s bleu"
    else:
        yield "parameters", f"{described['parameters']:,} ({size})"
    if memory := described.get("memory"):
        needs = {name: shown_bytes(count) for name, count in memory.items()}
        uses = "{float32} to translate, {int8} with --quantization int8, {training} to train"
        if described["task"] == "classification":
            uses = "{float32} to classify, {training} to train"
        yield "memory", uses.format(**needs)
    yield "architecture", _architecture(described["model"], described["task"])
    yield "vocabulary", _vocabulary(**described["vocabulary"])
    yield "tokenizer", described["tokenizer_fingerprint"]
    for name, value in metrics.items():
        if "." in name:  # of a direction, or of the worst
            continue
        yield name, f"{value:.4g}" if isinstance(value, float) else str(value)
    yield "weights", f"sha256 {described['weights_sha256'][:16]}"


def _architecture(model: Mapping[str, Any], task: str) -> str:
    layers, tied = counted(model["num_encoder_layers"], "layer"), ""
    if task == "translation":
        layers = f"{model['num_encoder_layers']}+{model['num_decoder_layers']} layers"
        tied = f", embeddings tied: {model['tied_embeddings']}"
    return (
        f"{layers}, d_model {model['d_model']}, "
        f"{model['num_heads']} heads of {model['head_dim'] or model['d_model'] // model['num_heads']}, "
        f"d_ff {model['d_ff']}, {model['activation']}, "
        f"{model['norm_position']}-norm ({model['norm']}), {model['positions']} positions{tied}"
    )


def _vocabulary(source: int, target: int | None = None, shared: bool = False) -> str:
    if target is None or shared:
        return f"{source:,} pieces" + ", shared" * shared
    return f"{source:,} source and {target:,} target pieces"
