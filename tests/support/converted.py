"""A model of ours as a folder of CTranslate2, and the sentences that tests of its engine and of its folders ask."""

import random

from support.foreign_models import SOURCE

from seq2seq.inference.ctranslate2_engine import CTranslate2Engine
from seq2seq.interop import ctranslate2_export as export
from seq2seq.search.base import Sentence


def converted_engine(model, folder, quantization="float32", threads=1):
    folder.mkdir()
    export.write_ctranslate2(folder, model.model, model.description, model.tokenizers, quantization)
    return CTranslate2Engine(folder, model.tokenizers, model.model.config.max_length, threads=threads)


def sentences(model, count=24):
    draw = random.Random(1)
    words = " ".join(SOURCE).split()
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 9))) for _ in range(count)]
    return [Sentence(ids, key=key) for key, ids in enumerate(model.tokenizers.source.encode_all(lines))]
