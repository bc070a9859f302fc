"""Conversion of models from and to other toolkits, for `s2s convert`.

`interop` reads and writes foreign folders; this module reads and writes our model folders, and checks that an export
translates like the model.
"""

import contextlib
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from seq2seq import atomic, hub
from seq2seq.config.description import ModelDescription
from seq2seq.errors import ModelError, RunError, UserError
from seq2seq.evaluation.probe import Comparison, Probe, builtin_sentences, compare, least_chrf
from seq2seq.files import DamagedFile, read_object
from seq2seq.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq.inference.engine import ONE_BEST
from seq2seq.inference.loading import load_engine
from seq2seq.inference.translator import Translator
from seq2seq.interop.architectures import KINDS
from seq2seq.interop.argos import SUFFIX, argos_obstacles, write_argos
from seq2seq.interop.ctranslate2_export import write_ctranslate2
from seq2seq.interop.m2m import read_m2m
from seq2seq.interop.m2m_export import absent_languages, m2m_obstacles, write_m2m
from seq2seq.interop.marian import marian_obstacles, read_marian, write_marian
from seq2seq.languages import own_code
from seq2seq.store.direction import has_tag, one_direction
from seq2seq.store.finding import CONFIG, check_new, find_model
from seq2seq.store.model_card import front_matter, short_card
from seq2seq.store.model_folder import CARD, FORMAT, LoadedModel, load_foreign, load_model, save_model
from seq2seq.text.direction import UNNAMED, Direction
from seq2seq.text.multilingual_tokenizer import MultilingualTokenizer

logger = logging.getLogger(__name__)


def import_foreign(folder: Path, output: Path, torch_file: bool = False, kind: str = "marian") -> Path:
    """Convert a folder of transformers, or the model of that name on the hub, to a model folder.

    Args:
        folder: the folder.
        output: the model folder to write.
        torch_file: as in `read_marian`.
        kind: a key of `interop.architectures.KINDS`.

    Raises:
        ModelError: it cannot be read, is of another kind, or `output` exists already.
    """
    check_new(output)
    loaded = load_foreign(_foreign_folder(folder, torch_file), torch_file, KINDS[kind])
    origin = f"Converted from the folder `{folder.name}` of transformers ({kind})."
    card = short_card(loaded.description, output.name, [origin], loaded.tokenizers.needed)
    if name := loaded.description.license:
        restriction = "; non-commercial use only" if "-nc" in name.lower() else ""
        logger.info("licence: %s%s; the model card names it", name, restriction)
    return save_model(output, loaded.model.state_dict(keep_vars=True), loaded.description, loaded.tokenizers, card)


def _foreign_folder(folder: Path, torch_file: bool) -> Path:
    """Return the folder to read; a model of ours is refused by its path."""
    if not folder.is_dir() and hub.is_hub_name(folder):
        return hub.fetch_model(folder, torch_file)
    found = folder if (folder / CONFIG).is_file() else find_model(folder)
    with contextlib.suppress(DamagedFile):  # named when it is loaded
        if read_object(found / CONFIG).get("format") == FORMAT:
            raise ModelError(f"{found}: a model of seq2seq already; use it as MODEL, or export it with --to")
    return found


def export_marian(model: Path, output: Path) -> Path:
    """Write a model as a Marian folder, read it back, and compare the two.

    Raises:
        ModelError: Marian cannot express the model (the message names each obstacle), or `output` exists already.
        RunError: the folder that was read back differs from the model.
    """
    check_new(output)
    loaded = _load_translation(model)
    description, tokenizers = loaded.description, loaded.tokenizers
    if obstacles := marian_obstacles(description.model, tokenizers):
        raise ModelError(f"{loaded.folder}: a Marian folder cannot hold this model: {'; '.join(obstacles)}")
    with _writing(output) as folder:
        write_marian(folder, description, tokenizers, loaded.weights)
        front = front_matter(description, output.name, library_name="transformers", tags=["marian"])
        advice = "Load it with `AutoTokenizer` and `MarianMTModel`."
        if has_tag(description, tokenizers):
            tag = tokenizers.source.tags[description.target_language]
            advice += f" Begin each text with `{tag}`, as in the training of the model; the tokenizer adds no tag."
            logger.warning("%s: transformers adds no tag of the target language; begin each text with %s", output, tag)
        text = f"{front}\n# Marian model\n\n{advice}\n"
        (folder / CARD).write_text(text, encoding="utf-8")
        written, read, _ = read_marian(folder)
        kept = description.search, description.license, tokenizers.fingerprint
        if (written.search, written.license, read.fingerprint) != kept:
            raise RunError(
                f"{output}: tokenizers, licence or search settings changed when they were read back; the export is not "
                "kept"
            )
    return output


def export_m2m(model: Path, output: Path) -> Path:
    """Write a multilingual model as an M2M-100 folder, read it back, and compare the two.

    Raises:
        ModelError: M2M-100 cannot express the model (the message names each obstacle), or `output` exists already.
        RunError: the folder that was read back differs from the model.
    """
    check_new(output)
    loaded = _load_translation(model)
    description, tokenizers = loaded.description, loaded.tokenizers.undirected
    if obstacles := m2m_obstacles(description.model, tokenizers):
        raise ModelError(f"{loaded.folder}: an M2M-100 folder cannot hold this model: {'; '.join(obstacles)}")
    if description.source_language and description.target_language:
        description = loaded.directed().description  # under the names of the tags
    with _writing(output) as folder:
        write_m2m(folder, description, tokenizers, loaded.weights)
        (folder / CARD).write_text(_m2m_card(description, tokenizers.source, output.name), encoding="utf-8")
        written, read, back = read_m2m(folder)
        sides = (tokenizers.source, loaded.model), (read.source, back)
        pieces = [*tokenizers.source.generated_pieces(), *tokenizers.source.tags.values()]
        ids = [[tokenizer.vocabulary.get(piece, -1) for piece in pieces] for tokenizer, _ in sides]
        rows = [model.output.weight[of_pieces] for of_pieces, (_, model) in zip(ids, sides, strict=True)]
        is_same = -1 not in ids[1] and torch.equal(*rows) and read.source.tags.keys() == tokenizers.source.tags.keys()
        is_same = is_same and read.source.vocab_size == tokenizers.source.vocab_size  # the softmax has as many terms
        if written.search != description.search or written.license != description.license or not is_same:
            raise RunError(
                f"{output}: weights, licence or search settings changed when they were read back; the export is not "
                "kept"
            )
    return output


def _m2m_card(description: ModelDescription, reader: MultilingualTokenizer, title: str) -> str:
    """Return the card of an M2M-100 folder: how to load it, and which languages it has."""
    languages = description.languages or list(reader.tags)
    front = front_matter(description, title, library_name="transformers", tags=["m2m_100"], language=list(languages))
    paragraphs = ["# M2M-100 model", "Load it with `AutoTokenizer` and `M2M100ForConditionalGeneration`."]
    if absent := absent_languages(reader):
        paragraphs.append(
            f"It translates between {', '.join(reader.tags)}. The tokenizer of transformers also lists "
            f"{', '.join(absent)}, which the model lacks: do not use them. Their rows are copies, so probabilities of "
            "transformers are a little lower than those of the model, and a beam search may choose another translation."
        )
    return front + "\n" + "\n\n".join(paragraphs) + "\n"


def export_ctranslate2(model: Path, output: Path, quantization: str, probe: Probe, force: bool = False) -> Comparison:
    """Write a model as a CTranslate2 folder, and check that it translates like the model; a multilingual model in one
    direction.

    Raises:
        ModelError: CTranslate2 cannot run the model, or `output` exists already.
        RunError: the export translates the probe too differently; it is kept only with `force`.
    """
    check_new(output)
    loaded = _load_translation(model)
    with _writing(output) as folder:
        write_ctranslate2(folder, loaded.model, loaded.description, loaded.tokenizers, quantization)
        return _verified(loaded, folder, quantization, probe, force)


def export_argos(
    model: Path, output: Path, quantization: str, languages: tuple[str | None, str | None], probe: Probe, force: bool
) -> Comparison:
    """Write a model as a package of Argos Translate; `languages` override those of the model.

    Raises:
        ModelError, RunError: for the reasons that `export_ctranslate2` lists.
        UserError: the languages are not known, or `output` does not end in .argosmodel.
    """
    if output.suffix != SUFFIX:
        raise UserError(f"{output}: Argos Translate takes files that end in {SUFFIX}; name it {output.stem}{SUFFIX}")
    if os.path.lexists(output):
        raise ModelError(f"{output}: exists already; name a new file with -o")
    loaded = _load_translation(model)
    description, tokenizers = loaded.description, loaded.tokenizers
    if obstacles := argos_obstacles(tokenizers):
        raise ModelError(f"{loaded.folder}: an Argos package cannot hold this model: {'; '.join(obstacles)}")
    named = languages[0] or description.source_language, languages[1] or description.target_language
    if not all(named):
        raise UserError(f"{loaded.folder}: does not name its languages; give --source-language and --target-language")
    source, target = map(own_code, named)
    if odd := [code for code in (source, target) if not re.fullmatch("[a-z]{2,3}", code)]:
        raise UserError(
            f"{odd[0]!r} is not a language code such as de; name others with --source-language and --target-language"
        )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_ctranslate2(folder, loaded.model, description, tokenizers, quantization)
        comparison = _verified(loaded, folder, quantization, probe, force)
        with _named(output), atomic.new_file(output) as file:
            write_argos(file, folder, tokenizers, (source, target), description.license)
    return comparison


def _verified(loaded: LoadedModel, folder: Path, quantization: str, probe: Probe, force: bool) -> Comparison:
    direction = _probed(loaded)
    languages = {f"{side}_language": language for side, language in vars(direction).items()}
    exported = load_engine([folder], search=ONE_BEST, direction=direction)
    description = loaded.directed(direction).description
    assert isinstance(exported.engine, CTranslate2Engine)
    comparison = compare(
        _texts(Translator.load(loaded.folder, engine="torch", **languages, **ONE_BEST)),
        _texts(Translator(exported.engine, exported.tokenizers, exported.search)),
        probe.lines or builtin_sentences(description.source_language),
        least_chrf(quantization, builtin=probe.lines is None),
        probe.references,
        description.target_language,
        exported.engine.compute_type,
    )
    if not comparison.is_good and not force:
        report = "; ".join(comparison.lines_of_report())
        better = "use --probe with sentences of the model's domain, or " if probe.lines is None else ""
        raise RunError(
            f"not kept, because it translates too differently from the original: {report}; {better}keep it with --force"
        )
    return comparison


def _probed(loaded: LoadedModel) -> Direction:
    """Return the direction in which an export is compared with the model."""
    known = loaded.description
    if not loaded.tokenizers.needs_direction or (known.source_language and known.target_language):
        return UNNAMED
    return one_direction(known, loaded.tokenizers)


def _texts(translator: Translator) -> Callable[[Sequence[str]], list[str]]:
    return lambda lines: [translation.text for translation in translator.translate(lines)]


def _load_translation(model: Path) -> LoadedModel:
    loaded = load_model(model)
    if (task := loaded.description.task) != "translation":
        raise ModelError(f"{loaded.folder}: a {task} model; only translation models can be converted")
    return loaded


@contextlib.contextmanager
def _writing(output: Path) -> Iterator[Path]:
    """Yield the folder of `atomic.new_folder`, with one-line errors."""
    with _named(output), atomic.new_folder(output) as folder:
        yield folder


def _named(output: Path) -> contextlib.AbstractContextManager[None]:
    """Return a context that turns an `OSError` into one line that names the output."""
    return atomic.writing_in(output, "choose another name with -o")
