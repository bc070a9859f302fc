"""Folders of M2M-100, NLLB and mBART made on the spot by transformers, with random weights; tests import the makers."""

import functools
import importlib
import json
import random
from pathlib import Path
from types import SimpleNamespace

import torch
from support.foreign_models import SOURCE, TARGET, learn_by_heart, sentencepiece_model

FAMILIES = ("m2m100", "nllb", "mbart50", "mbart25")
# Of each family: source and target.
PAIRS = {
    "m2m100": ("en", "de"),
    "nllb": ("eng_Latn", "deu_Latn"),
    "mbart50": ("en_XX", "de_DE"),
    "mbart25": ("en_XX", "de_DE"),
}
TEXTS = (*SOURCE, *TARGET)
SEGMENTER = "sentencepiece.bpe.model"


@functools.cache
def _segmenter(kind: str) -> bytes:
    return sentencepiece_model(TEXTS, 110, kind)


def write_tokenizer(folder: Path, family: str, legacy: bool = False):
    """The tokenizer's files as the published folders have them; transformers' own tokenizer of them."""
    import transformers

    folder.mkdir(parents=True, exist_ok=True)
    kind = "bpe" if family in ("nllb", "m2m100") else "unigram"
    (folder / SEGMENTER).write_bytes(_segmenter(kind))
    if family == "m2m100":
        segmenter = transformers.models.m2m_100.tokenization_m2m_100.load_spm(str(folder / SEGMENTER), {})
        pieces = ["<s>", "<pad>", "</s>", "<unk>", *segmenter.id_to_piece(list(range(3, segmenter.vocab_size())))]
        (folder / "vocab.json").write_text(json.dumps({piece: id_ for id_, piece in enumerate(pieces)}))
        codes = transformers.models.m2m_100.tokenization_m2m_100.FAIRSEQ_LANGUAGE_CODES["m2m100"]
        named = {"tokenizer_class": "M2M100Tokenizer", "extra_special_tokens": [f"__{code}__" for code in codes]}
        (folder / "tokenizer_config.json").write_text(json.dumps(named))
        return transformers.M2M100Tokenizer.from_pretrained(folder)
    classes = {"nllb": "NllbTokenizer", "mbart50": "MBart50Tokenizer", "mbart25": "MBartTokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": classes[family]}))
    if family == "nllb":
        made = json.loads(transformers.NllbTokenizer.from_pretrained(folder).backend_tokenizer.to_str())
    else:
        slow = importlib.import_module("transformers.convert_slow_tokenizer")
        original = SimpleNamespace(vocab_file=str(folder / SEGMENTER), convert_tokens_to_ids=lambda piece: 0)
        converter = slow.MBart50Converter if family == "mbart50" else slow.MBartConverter
        made = json.loads(converter(original).converted().to_str())
    module = getattr(transformers.models, {"nllb": "nllb", "mbart50": "mbart50", "mbart25": "mbart"}[family])
    codes = getattr(module, f"tokenization_{module.__name__.rpartition('.')[2]}").FAIRSEQ_LANGUAGE_CODES
    if family == "nllb":  # without tokenizer.json the class has no languages
        made["model"]["vocab"] |= {piece: len(made["model"]["vocab"]) + n for n, piece in enumerate([*codes, "<mask>"])}
    ids = made["model"]["vocab"]
    ids = ids if isinstance(ids, dict) else {piece: id_ for id_, (piece, _) in enumerate(ids)}
    special = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    names = ["<s>", "<pad>", "</s>", "<unk>", *codes, "<mask>"]
    made["added_tokens"] = [{"id": ids[name], "content": name, **special} for name in names]
    made["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(made, ensure_ascii=False))
    named = {"tokenizer_class": classes[family], "extra_special_tokens": list(codes)}
    if legacy:
        named["legacy_behaviour"] = True
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return getattr(transformers, classes[family]).from_pretrained(folder)


def train_nllb(folder: Path) -> None:
    """Write a folder of NLLB that translates by heart, with the licence of the published ones."""
    make_multilingual(folder, "nllb", noise=0.0, steps=80, dropout=0.0, attention_dropout=0.0, d_model=32)
    (folder / "README.md").write_text("---\nlanguage:\n- en\nlicense: cc-by-nc-4.0\n---\n# NLLB\n", encoding="utf-8")


def drawn_architecture(number: int) -> dict[str, object]:
    """A random architecture in the words of their configurations; the numbers 0 to 3 scale embeddings or do not, with
    each of two activations."""
    draw = random.Random(number)
    heads = draw.choice([1, 2, 4])
    layers = draw.sample([1, 2, 3], 2)
    width = draw.choice([8, 24, 40])
    return {
        "d_model": heads * draw.choice([4, 8, 12]),
        "encoder_layers": layers[0],
        "decoder_layers": layers[1],
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": width,
        "decoder_ffn_dim": width,
        "activation_function": ("relu", "gelu")[number % 2],
        "scale_embedding": number % 4 < 2,
        "max_position_embeddings": draw.choice([32, 50]),
    }


def make_multilingual(
    folder: Path, family: str, seed=0, padded=3, noise=0.25, steps=0, legacy=False, everywhere=False, **settings
):
    """A folder as `save_pretrained` of transformers writes it; the model and its tokenizer.

    The weights are random, or with `steps` trained by transformers to translate by heart, in both directions; norms and
    an output bias are random with `everywhere`.
    """
    import transformers

    tokenizer = write_tokenizer(folder, family, legacy)
    size = max(tokenizer.get_vocab().values()) + 1 + padded
    if family == "m2m100":
        size = tokenizer.encoder_size + len(tokenizer.lang_code_to_id) + 8
    values = dict(
        vocab_size=size, d_model=16, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=24, decoder_ffn_dim=24,
        encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=64, scale_embedding=True,
    ) | settings  # fmt: skip
    torch.manual_seed(seed)
    if family.startswith("mbart"):
        start = 2 if family == "mbart50" else tokenizer.convert_tokens_to_ids(PAIRS[family][1])
        config = transformers.MBartConfig(decoder_start_token_id=start, **values)
        model = transformers.MBartForConditionalGeneration(config).eval()
    else:
        config = transformers.M2M100Config(**values)
        model = transformers.M2M100ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" not in name or everywhere:
                weight.add_(torch.randn_like(weight) * noise)
        if everywhere and (bias := getattr(model, "final_logits_bias", None)) is not None:
            bias.copy_(torch.randn_like(bias))
    if steps:
        tokenizer.src_lang, tokenizer.tgt_lang = PAIRS[family]
        learn_by_heart(model, tokenizer, steps)
    model.save_pretrained(folder)
    return model, tokenizer
