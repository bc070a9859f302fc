"""Marian folders made on the spot by transformers, with random weights or trained a little; tests import the makers."""

import functools
import io
import json
import random
from pathlib import Path

import sentencepiece
import torch

SOURCE = [
    "the cat sat on the mat", "a dog runs in the park", "two men walk home", "she reads a book",
    "the old house is red", "where is the station?", "it rains, and it rains!", "no one knows him",
]  # fmt: skip
TARGET = [
    "die Katze saß auf der Matte", "ein Hund läuft im Park", "zwei Männer gehen nach Hause", "sie liest ein Buch",
    "das alte Haus ist rot", "wo ist der Bahnhof?", "es regnet, und es regnet!", "niemand kennt ihn",
]  # fmt: skip
LANGUAGES = (">>deu<<", ">>nld<<")
JAPANESE = [
    "ねこがすわる", "いぬがはしる", "ひとがあるく", "ほんをよむ", "いえはあかい", "えきはどこですか", "あめがふる",
    "だれもしらない",
]  # fmt: skip


@functools.cache
def sentencepiece_model(texts: tuple[str, ...], vocab_size=70, kind="unigram"):
    """A model as OPUS-MT has them: no padding, no bytes, normalised, with a space put in front."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts * 5), model_writer=written, model_type=kind, vocab_size=vocab_size,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


def marian_vocabulary(models, languages=(), padding=0):
    """The ids of the pieces of all models in Marian's order; `padding` rows of the weights have no piece."""
    pieces = dict.fromkeys(["</s>", "<unk>", *languages])
    for model in models:
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        pieces |= dict.fromkeys(processor.id_to_piece(list(range(3, processor.vocab_size()))))
    return {piece: number for number, piece in enumerate([*pieces, *["<pad>"] * (not padding)])}


def write_tokenizers(folder, separate=False, languages=(), kind="unigram", texts=(SOURCE, TARGET)):
    """`source.spm`, `target.spm`, the vocabularies and `tokenizer_config.json`; the sizes of both vocabularies."""
    folder.mkdir(parents=True, exist_ok=True)
    # transformers wants the id of padding, the target's last, to be one of the source too.
    sizes = (70, 45) if separate else (70, 70)
    models = [sentencepiece_model(tuple(own), size, kind) for own, size in zip(texts, sizes, strict=True)]
    for name, model in zip(("source.spm", "target.spm"), models, strict=True):
        (folder / name).write_bytes(model)
    sides = [[models[0]], [models[1]]] if separate else [models, models]
    vocabularies = [marian_vocabulary(side, languages) for side in sides]
    (folder / "vocab.json").write_text(json.dumps(vocabularies[0]))
    if separate:
        (folder / "target_vocab.json").write_text(json.dumps(vocabularies[1]))
    named = {"tokenizer_class": "MarianTokenizer", "source_lang": "en", "target_lang": "de"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**named, "separate_vocabs": separate}))
    return [len(vocabulary) for vocabulary in vocabularies]


def drawn_settings(draw: random.Random):
    """A random architecture, in MarianConfig's words."""
    heads = draw.choice([1, 2, 4])
    separate = draw.random() < 0.3
    return {
        "separate": separate,
        "d_model": heads * draw.choice([4, 8, 12]),
        "encoder_layers": draw.randint(1, 3),
        "decoder_layers": draw.randint(1, 3),
        "attention_heads": heads,
        "ffn_dim": draw.choice([8, 24, 48]),
        "activation_function": draw.choice(["swish", "silu", "relu", "gelu"]),
        "scale_embedding": draw.random() < 0.7,
        "share_encoder_decoder_embeddings": not separate and draw.random() < 0.7,
        "tie_word_embeddings": draw.random() < 0.7,
        "languages": LANGUAGES if draw.random() < 0.3 else (),
        "kind": draw.choice(["unigram", "bpe"]),
    }


def make_marian(
    folder: Path,
    seed=0,
    separate=False,
    languages=(),
    kind="unigram",
    attention_heads=2,
    ffn_dim=24,
    noise=0.25,
    texts=(SOURCE, TARGET),
    **settings,
):
    """A Marian folder with random weights, as `save_pretrained` of transformers writes it, and the model itself."""
    from transformers import MarianConfig, MarianMTModel

    sizes = write_tokenizers(folder, separate, languages, kind, texts)
    values = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "scale_embedding": True} | settings
    if separate:
        values |= {"share_encoder_decoder_embeddings": False}
    config = MarianConfig(
        vocab_size=sizes[0], decoder_vocab_size=sizes[1], pad_token_id=sizes[1] - 1, eos_token_id=0,
        decoder_start_token_id=sizes[1] - 1, forced_eos_token_id=0, max_position_embeddings=64,
        encoder_attention_heads=attention_heads, decoder_attention_heads=attention_heads,
        encoder_ffn_dim=ffn_dim, decoder_ffn_dim=ffn_dim, **values,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "positions" not in name and weight.dim() and "layer_norm" not in name:
                weight.add_(torch.randn_like(weight) * noise)
        if noise:
            model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
            model.final_logits_bias[0, 0] += 5.0  # or it would hardly ever end
    model.generation_config.bad_words_ids = [[sizes[1] - 1]]
    model.generation_config.num_beams = 4
    model.save_pretrained(folder)
    return model


def train_marian(folder: Path, steps=100):
    """A Marian folder whose model was trained by transformers to translate the sentences above by heart."""
    from transformers import AutoTokenizer

    model = make_marian(folder, noise=0.0, d_model=32, ffn_dim=64, activation_function="swish", dropout=0.0)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    learn_by_heart(model, tokenizer, steps)
    model.save_pretrained(folder)
    return model


def learn_by_heart(model, tokenizer, steps: int) -> None:
    """Train a model of transformers on the sentences above."""
    batch = tokenizer(SOURCE, text_target=TARGET, return_tensors="pt", padding=True)
    batch["labels"][batch["labels"] == tokenizer.pad_token_id] = -100
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    model.eval()
