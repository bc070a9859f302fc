"""Comparison of a model with its export on probe sentences, which decides whether the export is kept.

`convert` translates a `Probe` with the model and its export and makes a `Comparison`; `s2s bench` reads a `Probe`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import eq, sub
from pathlib import Path

from seq2seq.errors import DataError
from seq2seq.evaluation.text import score_texts
from seq2seq.languages import language_code
from seq2seq.lines import check_counts, read_lines

# The built-in probe, by source language: plain sentences of different lengths.
SENTENCES = {
    "en": (
        "The train to the coast leaves at seven in the morning.", "Where is the station?", "A man rides a bicycle.",
        "We have known each other since we were children, although we never lived in the same town.",
        "Please close the window before you go.", "It has been raining for three days.", "Thank you very much!",
        "Two dogs play in the snow while an old woman watches them from a bench.",
        "The price rose from 12 to 15 euros last year.", "I do not think that he will come back.",
        "If you have any questions, write to us or call us between nine and five.", "Good night.",
    ),
    "de": (
        "Der Zug an die Küste fährt um sieben Uhr morgens ab.", "Wo ist der Bahnhof?", "Ein Mann fährt Fahrrad.",
        "Wir kennen uns seit unserer Kindheit, obwohl wir nie in derselben Stadt gewohnt haben.",
        "Bitte schließen Sie das Fenster, bevor Sie gehen.", "Es regnet seit drei Tagen.", "Vielen Dank!",
        "Zwei Hunde spielen im Schnee, und eine alte Frau sieht ihnen von einer Bank aus zu.",
        "Der Preis stieg im letzten Jahr von 12 auf 15 Euro.", "Ich glaube nicht, dass er zurückkommt.",
        "Wenn Sie Fragen haben, schreiben Sie uns oder rufen Sie zwischen neun und fünf an.", "Gute Nacht.",
    ),
    "fr": (
        "Le train pour la côte part à sept heures du matin.", "Où est la gare ?", "Un homme fait du vélo.",
        "Nous nous connaissons depuis l'enfance, bien que nous n'ayons jamais vécu dans la même ville.",
        "Fermez la fenêtre avant de partir, s'il vous plaît.", "Il pleut depuis trois jours.", "Merci beaucoup !",
        "Deux chiens jouent dans la neige pendant qu'une vieille femme les regarde depuis un banc.",
        "Le prix est passé de 12 à 15 euros l'an dernier.", "Je ne pense pas qu'il revienne.",
        "Si vous avez des questions, écrivez-nous ou appelez-nous entre neuf et dix-sept heures.", "Bonne nuit.",
    ),
    "es": (
        "El tren a la costa sale a las siete de la mañana.", "¿Dónde está la estación?", "Un hombre va en bicicleta.",
        "Nos conocemos desde niños, aunque nunca vivimos en la misma ciudad.", "Cierre la ventana antes de irse.",
        "Llueve desde hace tres días.", "¡Muchas gracias!", "Dos perros juegan en la nieve.",
        "El precio subió de 12 a 15 euros el año pasado.", "No creo que vuelva.",
        "Si tiene alguna pregunta, escríbanos o llámenos entre las nueve y las cinco.", "Buenas noches.",
    ),
}  # fmt: skip

# Minimum chrF of an export with the model as the reference. The built-in sentences are few and may be far from the
# domain of a model, so that small changes of its weights change more translations.
LEAST_CHRF = {"float32": 97.0, "float16": 95.0, "bfloat16": 90.0}
LEAST_CHRF_QUANTIZED, LEAST_CHRF_BUILTIN = 85.0, 60.0
# Maximum loss in points of BLEU and of chrF, against references.
MOST_LOST = 1.0
# Speed is measured on at least this many lines, after a warm-up.
LEAST_TIMED_LINES, WARM_UP_LINES = 100, 16


@dataclass(frozen=True)
class Probe:
    """Sentences to translate, and optionally their reference translations; None is a built-in set."""

    lines: tuple[str, ...] | None = None
    references: tuple[str, ...] | None = None

    @classmethod
    def read(cls, lines: Path | None, references: Path | None) -> "Probe":
        """Read a probe from files; without `lines`, it is the built-in one.

        Raises:
            DataError: a file cannot be read or is empty, or the two have different numbers of lines.
        """
        if lines is None:
            return cls()
        texts = tuple(read_lines(lines))
        if not any(map(str.strip, texts)):
            raise DataError(f"{lines}: there is nothing to translate; name another file")
        if references is None:
            return cls(texts)
        gold = tuple(read_lines(references))
        check_counts(lines, len(texts), references, len(gold))
        return cls(texts, gold)


@dataclass(frozen=True)
class Comparison:
    """The translations of an export compared with those of its model."""

    lines: int
    identical: int
    bleu: float
    """BLEU of the export, with the model's translations as references; so is `chrf`."""
    chrf: float
    bleu_change: float | None
    """BLEU of the export minus BLEU of the model, against references; None without references. So is `chrf_change`."""
    chrf_change: float | None
    seconds: float
    """Time of the model in PyTorch, in seconds; `seconds_exported` is that of the export."""
    seconds_exported: float
    least_chrf: float
    computed_in: str = ""
    """Number format of the computation of the export, which may differ from that of its weights."""

    @property
    def is_good(self) -> bool:
        """Whether the export is close enough to be kept."""
        changes = (self.bleu_change, self.chrf_change)
        return self.chrf >= self.least_chrf and all(change is None or change >= -MOST_LOST for change in changes)

    def lines_of_report(self) -> list[str]:
        """Return the figures as lines of text."""
        report = [
            f"{self.identical:,} of {self.lines:,} translations are those of the original; with these as references, "
            f"chrF is {self.chrf:.2f} ({self.least_chrf:g} is required) and BLEU {self.bleu:.2f}",
        ]
        if self.bleu_change is not None:
            report.append(
                f"against the references BLEU changes by {self.bleu_change:+.2f} and chrF by {self.chrf_change:+.2f} "
                f"(the maximum loss is {MOST_LOST:g})",
            )
        return [*report, f"this machine computes the export in {self.computed_in}"] if self.computed_in else report

    def speed(self) -> str | None:
        """Return the speed of both in lines per second; None if there were too few lines to measure it."""
        if self.lines < LEAST_TIMED_LINES:
            return None
        exported, original = (f"{self.lines / max(time, 1e-9):,.1f}" for time in (self.seconds_exported, self.seconds))
        return f"speed: export {exported} lines/s, original {original} lines/s"


def builtin_sentences(source_language: str | None) -> tuple[str, ...]:
    """Return sentences in the source language of a model, or English ones."""
    return SENTENCES.get(language_code(source_language), SENTENCES["en"])


def least_chrf(quantization: str, builtin: bool) -> float:
    """Return the minimum chrF of an export with this number format, on sentences of its domain or on the built-in
    ones."""
    return LEAST_CHRF.get(quantization, LEAST_CHRF_BUILTIN if builtin else LEAST_CHRF_QUANTIZED)


def compare(
    translate: Callable[[Sequence[str]], list[str]],
    translate_exported: Callable[[Sequence[str]], list[str]],
    lines: Sequence[str],
    least: float,
    references: Sequence[str] | None = None,
    target_language: str | None = None,
    computed_in: str = "",
) -> Comparison:
    """Translate `lines` with a model and with its export, and measure the difference."""

    def timed(engine: Callable[[Sequence[str]], list[str]]) -> tuple[list[str], float]:
        if len(lines) >= LEAST_TIMED_LINES:
            engine(lines[:WARM_UP_LINES])
        begun = time.perf_counter()
        return engine(lines), time.perf_counter() - begun

    def scores(hypotheses: Sequence[str], gold: Sequence[str]) -> list[float]:
        found = score_texts(hypotheses, gold, ("bleu", "chrf"), target_language=target_language)
        return [score.score for score in found]

    (texts, seconds), (exported, seconds_exported) = timed(translate), timed(translate_exported)
    identical = sum(map(eq, texts, exported))
    bleu, chrf = (100.0, 100.0) if identical == len(lines) else scores(exported, texts)
    changes: list[float | None] = [None, None]
    if references is not None:
        changes = list(map(sub, scores(exported, references), scores(texts, references)))
    return Comparison(len(lines), identical, bleu, chrf, *changes, seconds, seconds_exported, least, computed_in)
