"""How well tags are placed: 40 captions with tags in both languages, by hand (`placement_gold.tsv`).

`python tests/support/placement.py MODEL` prints the share of pairs of tags that enclose the same words as by hand, when
the model's attention aligns the caption with its translation by hand.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from seq2seq.inference.aligner import Aligner
from seq2seq.markup.render import Answer
from seq2seq.markup.translation import Translate, translate_documents

TAG = re.compile(r"</?\w+>")
GOLD = [tuple(line.split("\t")) for line in (Path(__file__).parent / "placement_gold.tsv").read_text().splitlines()]


def tagged(text: str) -> Counter[tuple[str, str]]:
    """Names of tags with what they enclose."""
    return Counter(re.findall(r"<(\w+)>(.*?)</\1>", text))


def score(translate: Translate) -> tuple[int, int]:
    """Pairs of tags in their places, and all of them; `translate` links the plain captions with their translations."""
    right = 0
    outputs = translate_documents([source for source, _ in GOLD], "html", translate)
    for (_, target), output in zip(GOLD, outputs, strict=True):
        right += (tagged(target) & tagged(output.text)).total()
        if "-v" in sys.argv and tagged(target) != tagged(output.text):
            print(target, output.text, sep="\n", end="\n\n")
    return right, sum(tagged(target).total() for _, target in GOLD)


def by_hand(aligner: Aligner) -> Translate:
    """The translations of the gold set, aligned by a model."""
    known = {TAG.sub("", source): TAG.sub("", target) for source, target in GOLD}

    def translate(texts):
        pairs = [(text, known[text]) for text in texts]
        return [Answer(target, one) for (_, target), one in zip(pairs, aligner.align(pairs), strict=True)]

    return translate


if __name__ == "__main__":
    right, count = score(by_hand(Aligner.load(sys.argv[1], device="cpu")))
    print(f"{right} of {count} pairs of tags stand where a person put them")
