"""The grammar of the labelled reviews, made so that counting kind and unkind words is not enough.

Every pattern serves both labels: `{same}` is a general word of the review's own verdict and `{other}` one of the
opposite, `{yes}` and `{no}` likewise among the words that fit the aspect, `{very}` an intensifier or nothing.
generate.py draws from here.
"""

import random
import re

PATTERNS = """
    This is a {very} {same} {thing}.
    What a {very} {same} {thing}!
    This {thing} is {very} {same}.
    The {aspect} {is} {very} {yes}.
    The {aspect} {is} {yes} and {also_yes}.
    The {aspect} {is} {very} {yes} and the {aspect2} {is2} {yes2}.
    The {aspect} {is} {very} {yes}. {verdict}.
    A {very} {same} {thing}. {verdict}.
    {verdict}, because the {aspect} {is} {very} {yes}.
    The {aspect} {is} {no}, but the {aspect2} {is2} {very} {yes2}.
    The {aspect} {is} {very} {no}, but all in all this is a {same} {thing}.
    Although the {aspect} {is} {no}, this is a {very} {same} {thing}.
    Even though the {aspect} {is} {very} {no}, {i_verdict}.
    Despite the {no} {aspect}, it is a {very} {same} {thing}.
    The {aspect} {is} not {no} at all.
    The {aspect} {is} not {no} at all, and the {aspect2} {is2} {yes2}.
    The {aspect} {is} neither {no} nor {also_no}.
    The {aspect} {is} anything but {no}.
    The {aspect} {is} far from {no}.
    The {aspect} {is} never {no}.
    This is not a {other} {thing} at all.
    This {thing} is anything but {other}.
    Nothing about this {thing} is {other}.
    Everything about this {thing} is {same}.
    No other {thing} is as {same} as this one.
    I expected a {other} {thing}, but this one is {very} {same}.
    I thought the {aspect} would be {no}, but I was wrong.
    I thought the {aspect} would be {no}. In fact, {it_is} {very} {yes}.
    My friends found the {thing} {other}, but I think it is {very} {same}.
    Who says that this {thing} is {other}? It is {very} {same}.
    At first the {aspect} seemed {no}, but in the end the {thing} is {very} {same}.
    Others call the {aspect} {no}. I do not agree at all."""

INTENSIFIERS = ("really", "truly", "simply", "", "", "")
GENERAL = {
    True: ("wonderful", "excellent", "brilliant", "great", "fantastic", "lovely", "outstanding", "good", "superb"),
    False: ("terrible", "awful", "disappointing", "dreadful", "poor", "miserable", "horrible", "mediocre", "bad"),
}

# What is reviewed; then aspect: kind words / unkind words (a plus marks plurals); last the verdicts, kind / unkind.
DOMAINS = (
    """film, thriller, comedy, documentary
    acting: convincing, natural, moving / wooden, unconvincing, lifeless
    plot: clever, gripping, original / predictable, confusing, dull
    ending: touching, surprising, satisfying / silly, rushed, unbelievable
    dialogues+: funny, witty, sharp / stiff, clumsy, boring
    music: beautiful, fitting, haunting / loud, annoying, tasteless
    start: exciting, promising, fast / slow, tedious, confusing
    I would watch it again / I would not watch it again
    I laughed and cried / I fell asleep after an hour
    I can recommend it to everyone / I cannot recommend it to anyone""",
    """novel, biography, crime story, cookbook
    style: elegant, lively, clear / dry, long-winded, clumsy
    characters+: believable, likeable, interesting / flat, unlikeable, boring
    story: exciting, moving, original / predictable, confusing, tedious
    translation: careful, fluent, faithful / careless, stiff, faulty
    chapters+: short, entertaining, varied / endless, repetitive, tiring
    I could not put it down / I gave up halfway
    I would gladly read it again / I would never read it again
    I will give it to all my friends / I will give it away""",
    """restaurant, café, pizzeria, bistro
    food: delicious, fresh, tasty / cold, tasteless, greasy
    service: friendly, fast, attentive / rude, slow, careless
    waiters+: polite, helpful, cheerful / unfriendly, impatient, unhelpful
    portions+: generous, large, filling / tiny, stingy, meagre
    prices+: fair, reasonable, low / excessive, outrageous, shameless
    soup: hot, tasty, home-made / watery, lukewarm, salty
    I would gladly eat here again / I would never eat here again
    We will come back soon / We will not come back
    I can recommend it to everyone / I cannot recommend it to anyone""",
    """hotel, hostel, guest house, holiday flat
    room: clean, bright, spacious / dirty, dark, cramped
    bed: comfortable, soft, wide / hard, creaky, uncomfortable
    staff: friendly, helpful, polite / rude, unhelpful, indifferent
    breakfast: rich, fresh, varied / meagre, stale, monotonous
    location: quiet, central, ideal / noisy, remote, inconvenient
    towels+: clean, soft, fresh / dirty, rough, damp
    I would gladly stay here again / I would never stay here again
    We slept very well / We could not sleep at all
    It is worth every cent / It is a waste of money""",
    """camera, phone, vacuum cleaner, coffee machine
    battery: strong, durable, reliable / weak, unreliable, short-lived
    display: sharp, bright, clear / blurred, dim, scratched
    instructions+: clear, helpful, simple / confusing, incomplete, unreadable
    buttons+: large, sturdy, handy / tiny, flimsy, loose
    sound: clear, pleasant, full / tinny, unpleasant, shrill
    quality: high, solid, impressive / low, shoddy, unacceptable
    I would buy it again / I would not buy it again
    I am very happy with it / I sent it straight back
    It is worth every cent / It is a waste of money""",
    """app, game, website, program
    menu: clear, tidy, simple / cluttered, confusing, unclear
    search: fast, precise, reliable / slow, useless, unreliable
    updates+: useful, regular, welcome / pointless, annoying, buggy
    design: modern, beautiful, thoughtful / ugly, outdated, careless
    support: quick, friendly, competent / slow, unfriendly, clueless
    maps+: accurate, detailed, helpful / outdated, wrong, incomplete
    I use it every day / I deleted it after a day
    It saves me a lot of time / It costs me a lot of time
    I can recommend it to everyone / I cannot recommend it to anyone""",
    """course, lesson, workshop, lecture
    teacher: patient, inspiring, well prepared / impatient, boring, badly prepared
    exercises+: useful, varied, clever / pointless, repetitive, trivial
    explanations+: clear, simple, vivid / confusing, vague, endless
    pace: pleasant, sensible, steady / hectic, exhausting, sluggish
    material: interesting, modern, well chosen / outdated, dull, badly chosen
    group: small, friendly, motivated / noisy, oversized, unmotivated
    I learned a great deal / I learned nothing new
    I will sign up again / I will not sign up again
    It was worth the money / It was not worth the money""",
)


def draw_review(rng: random.Random, positive: bool) -> str:
    """One review of the verdict asked for; spaces and capitals are still to be polished."""
    things, aspects, verdicts = _read_domain(rng.choice(DOMAINS))
    first, second = rng.sample(aspects, 2)
    kind, unkind = first[1:] if positive else first[:0:-1]
    kind2, _ = second[1:] if positive else second[:0:-1]
    verdict = rng.choice(verdicts)[not positive]
    yes, also_yes = rng.sample(kind, 2)
    no, also_no = rng.sample(unkind, 2)
    words = {
        "thing": rng.choice(things),
        "same": rng.choice(GENERAL[positive]),
        "other": rng.choice(GENERAL[not positive]),
        "very": rng.choice(INTENSIFIERS),
        "aspect": first[0].removesuffix("+"),
        "aspect2": second[0].removesuffix("+"),
        "is": "are" if first[0].endswith("+") else "is",
        "is2": "are" if second[0].endswith("+") else "is",
        "it_is": "they are" if first[0].endswith("+") else "it is",
        "yes": yes,
        "also_yes": also_yes,
        "yes2": rng.choice(kind2),
        "no": no,
        "also_no": also_no,
        "verdict": verdict,
        "i_verdict": verdict if verdict.startswith("I ") else verdict[0].lower() + verdict[1:],
    }
    return rng.choice(PATTERNS.strip().splitlines()).strip().format_map(words)


def _read_domain(domain: str) -> tuple[list[str], list[tuple[str, list[str], list[str]]], list[list[str]]]:
    """The things, the aspects with their kind and unkind words, and the pairs of verdicts."""
    first, *lines = (line.strip() for line in domain.splitlines())
    aspects = []
    for line in lines:
        if match := re.fullmatch(r"([\w ]+\+?): (.*) / (.*)", line):
            aspects.append((match[1], match[2].split(", "), match[3].split(", ")))
    verdicts = [line.split(" / ") for line in lines if ":" not in line]
    return first.split(", "), aspects, verdicts
