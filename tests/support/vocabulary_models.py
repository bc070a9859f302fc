"""Small models of each kind whose vocabularies tests change, with their languages, and greedy translations."""

import torch
from support.foreign_models import make_marian
from support.multilingual_models import PAIRS, make_multilingual
from support.our_models import make_ours

from seq2seq.inference.steps import TransformerSteps
from seq2seq.inference.torch_engine import TorchEngine
from seq2seq.inference.translator import Translator

KINDS = ("ours shared", "ours separate", "marian", "marian separate", "m2m100", "nllb", "mbart25")


def make(folder, kind: str) -> tuple[str | None, str | None]:
    """Write the model; its languages, if it needs a direction."""
    if kind.startswith("ours"):
        shared = kind.endswith("shared")
        make_ours(folder, shared, ending=1.0, tied_embeddings="all" if shared else "none")
    elif kind.startswith("marian"):
        make_marian(folder, separate=kind.endswith("separate"))
    else:
        make_multilingual(folder, kind)
        return PAIRS[kind]
    return None, None


def hypotheses(loaded, texts, beam_size=1, **search):
    """The texts of translations, greedy if nothing else is said, without a second search."""
    engine = TorchEngine(TransformerSteps(loaded.model, loaded.tokenizers, torch.device("cpu")))
    config = loaded.description.search.model_copy(update={"beam_size": beam_size, **search})
    translator = Translator(engine, loaded.tokenizers, config, repair=False, description=loaded.description)
    return [translation.text for translation in translator.translate(texts)]
