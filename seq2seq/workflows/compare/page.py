"""A comparison as one HTML file: no script, nothing from elsewhere, at most 2 MB, for light and dark and small screens.

`page` writes what the table and the JSON have, from the same `SystemComparison`. All text is escaped, and a policy in
the file forbids scripts and requests.
"""

from collections.abc import Iterator
from dataclasses import replace

from seq2seq.errors import counted
from seq2seq.workflows.compare.comparison import SystemComparison
from seq2seq.workflows.compare.drawing import figure, legend
from seq2seq.workflows.compare.sentences import PairSentences, ShownSentence
from seq2seq.workflows.compare.views import Bucket, View
from seq2seq.workflows.compare.wording import cell, first_seed_note, meaning_of_p, p_of, shown_p, shown_value, verdict
from seq2seq.workflows.pages import document, escaped, table

LARGEST = 2_000_000  # bytes


def page(compared: SystemComparison) -> str:
    """Return the whole file; it has fewer sentences if it would be too large."""
    most = max((len(side) for pair in compared.sentences for side in (pair.won, pair.lost)), default=0)
    while len((text := _page(compared)).encode("utf-8", "replace")) > LARGEST and most:
        most //= 2
        cut = [replace(pair, won=pair.won[:most], lost=pair.lost[:most]) for pair in compared.sentences]
        compared = replace(compared, sentences=[pair for pair in cut if pair.won or pair.lost])
    return text


def _page(compared: SystemComparison) -> str:
    title = f"Comparison on {escaped(compared.test_set)}"
    parts = [
        f"<h1>{title}</h1>",
        f"<p>{counted(compared.num_lines, 'line')}, {counted(len(compared.rows), 'system')}.</p>",
        *(f'<p class="bad">{escaped(note)}</p>' for note in compared.notes),
        *_scores(compared),
        *_pairs(compared),
        "<h2>Kinds of sentences</h2>",
        *(_view(view) for view in compared.views),
        *_curves(compared),
        *_sentences(compared),
        "<h2>Signatures</h2>",
        *(
            f"<p><code>{escaped(compared.titles[key])}|{escaped(own)}</code></p>"
            for key, own in compared.signatures.items()
        ),
    ]
    return document(title, parts)


def _scores(compared: SystemComparison) -> Iterator[str]:
    yield "<h2>Scores</h2>"
    rows = [[name, *(cell(row[metric]) for metric in compared.titles)] for name, row in compared.rows.items()]
    yield table("Scores with 95 % intervals", ["system", *compared.titles.values()], rows)
    yield (
        '<p class="soft">Systems that share a letter are not different (p &lt; 0.05, two-sided, corrected for all '
        "pairs by Holm). Intervals come from 1,000 bootstrap resamples of lines; those of several seeds also count "
        "the variation between seeds, and are wide for two or three seeds.</p>"
    )
    if any(len(seeds) > 1 for seeds in compared.seeds.values()):
        rows = [
            [name, str(number), *(f"{row[metric].members[name]:.2f}" for metric in compared.titles)]
            for row_name, row in compared.rows.items()
            if len(compared.seeds[row_name]) > 1
            for name, number in zip(next(iter(row.values())).members, compared.seeds[row_name], strict=True)
        ]
        yield table("Scores of each seed", ["run", "seed", *compared.titles.values()], rows)


def _pairs(compared: SystemComparison) -> Iterator[str]:
    if not compared.pairs:
        return
    yield "<h2>Differences</h2>"
    rows = [
        [
            f"{pair.first} - {pair.second}", compared.titles[pair.metric], f"{pair.difference:+.2f}",
            p_of(pair), shown_p(pair.corrected), verdict(pair),
        ]
        for pair in compared.pairs
    ]  # fmt: skip
    yield table("Tests of all pairs", ["pair", "metric", "difference", "p", "corrected p", "finding"], rows)
    yield (
        f'<p class="soft">{escaped(" ".join(meaning_of_p(compared.pairs)))} A difference that "would have shown" is '
        "found in four of five such test sets.</p>"
    )


def _view(view: View) -> str:
    names = list(view.buckets[0].values)

    def shown(bucket: Bucket, name: str) -> str:
        value = bucket.values[name]
        return "" if value is None else shown_value(value, view.unit)

    rows = [[bucket.label, f"{bucket.count:,}", *(shown(bucket, name) for name in names)] for bucket in view.buckets]
    note = f'<p class="soft">{escaped(view.note)}</p>' if view.note else ""
    return table(view.title, ["", view.counted, *names], rows) + note


def _curves(compared: SystemComparison) -> Iterator[str]:
    curves = compared.curves
    if not curves.points and not curves.note:
        return
    yield "<h2>Learning curves</h2>"
    if curves.note:
        yield f'<p class="soft">{escaped(curves.note)}</p>'
    names = list(dict.fromkeys(name for lines in curves.points.values() for name in lines))
    if names:
        yield legend([escaped(name) for name in names])
        drawn = "\n".join(figure(key, axis, lines, names) for key, lines in curves.points.items() for axis in range(3))
        yield f'<div class="curves">\n{drawn}\n</div>'


def _sentences(compared: SystemComparison) -> Iterator[str]:
    pairs = [pair for pair in compared.sentences if pair.won or pair.lost]
    if not pairs:
        return
    yield "<h2>Sentences that differ most</h2>"
    yield '<p class="soft">By chrF of the sentence. Words that the other translation lacks are marked.</p>'
    if note := first_seed_note(compared):
        yield f'<p class="soft">{note}</p>'
    for number, pair in enumerate(pairs):
        noun = counted(pair.num_different, "line")
        title = f"{pair.first} and {pair.second}: {noun} differ{'s' * (pair.num_different == 1)}"
        opened = " open" if number == 0 else ""
        own = "\n".join(_sentence(pair, sentence) for sentence in (*pair.won, *pair.lost))
        yield f"<details{opened}><summary>{escaped(title)}</summary>\n{own}\n{_ngrams(pair)}\n</details>"


def _sentence(pair: PairSentences, sentence: ShownSentence) -> str:
    terms = [("source", escaped(sentence.source))] if sentence.source else []
    terms.append(("reference", escaped(sentence.reference)))
    for name, score, parts in zip((pair.first, pair.second), sentence.scores, sentence.texts, strict=True):
        text = "".join(f"<mark>{escaped(part)}</mark>" if is_own else escaped(part) for part, is_own in parts)
        terms.append((f"{escaped(name)}, chrF {score:.1f}", text))
    own = "".join(f'<dt>{term}</dt><dd dir="auto">{text}</dd>' for term, text in terms)
    return f"<h3>Line {sentence.line:,}</h3>\n<dl>{own}</dl>"


def _ngrams(pair: PairSentences) -> str:
    """Return a table of the word sequences that one of the two has right more often."""
    rows = [[one.text, str(one.first), str(one.second)] for one in pair.ngrams_won]
    rows += [[one.text, str(one.second), str(one.first)] for one in pair.ngrams_lost]
    caption = f"How often word sequences are right, {pair.first} and {pair.second}"
    return table(caption, ["words", pair.first, pair.second], rows) if rows else ""
