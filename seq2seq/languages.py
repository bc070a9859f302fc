"""Languages under all their names: `ja`, `jpn`, `ja_JP`, `jpn_Jpan`, `Japanese` and `日本語` are one language.

`evaluation.text` chooses BLEU's tokenizer by `language_code`, `probe` its sentences, `data.columns` its columns.
"""

import functools
import re
from collections.abc import Iterable, Iterator, Sequence

from seq2seq.errors import ModelError

# The ISO 639-1 code of each language, then its ISO 639-2 and 639-3 codes. A macrolanguage includes the codes of its
# members (Chinese: cmn and yue). Withdrawn and wrong codes that are common, such as jap, scr and zhs, come last.
_THREE_LETTERS = """
aa aar, ab abk, ae ave, af afr, ak aka fat, am amh, an arg, ar ara arb ary arz apc ajp acm acq aeb ars, as asm,
av ava, ay aym ayr, az aze azj azb, ba bak, be bel, bg bul, bi bis, bm bam, bn ben, bo bod tib, br bre, bs bos,
ca cat, ce che, ch cha, co cos, cr cre, cs ces cze cz, cu chu, cv chv, cy cym wel, da dan dk, de deu ger, dv div,
dz dzo, ee ewe, el ell gre gr, en eng, eo epo, es spa, et est ekk, eu eus baq, fa fas per pes prs, ff ful fuv, fi fin,
fj fij, fo fao, fr fra fre, fy fry, ga gle, gd gla, gl glg, gn grn gug, gu guj, gv glv, ha hau, he heb iw, hi hin,
ho hmo, hr hrv scr, ht hat, hu hun, hy hye arm, hz her, ia ina, id ind in, ie ile, ig ibo, ii iii, ik ipk, io ido,
is isl ice, it ita, iu iku, ja jpn jap jp, jv jav jw jaw, ka kat geo, kg kon, ki kik, kj kua, kk kaz, kl kal, km khm,
kn kan, ko kor, kr kau, ks kas, ku kur kmr ckb, kv kom, kw cor, ky kir, la lat, lb ltz, lg lug, li lim, ln lin,
lo lao, lt lit, lu lub, lv lav lvs, mg mlg plt, mh mah, mi mri mao, mk mkd mac, ml mal, mn mon khk, mr mar,
ms msa may zsm zlm, mt mlt, my mya bur, na nau, nb nob, nd nde, ne nep npi, ng ndo, nl nld dut, nn nno, no nor,
nr nbl, nv nav, ny nya, oc oci, oj oji, om orm gaz, or ori ory, os oss, pa pan, pi pli, pl pol, ps pus pbt, pt por,
qu que quy quz, rm roh, rn run, ro ron rum mol mo, ru rus, rw kin, sa san, sc srd, sd snd, se sme, sg sag, si sin,
sk slk slo, sl slv, sm smo, sn sna, so som, sq sqi alb als, sr srp scc, sh hbs, ss ssw, st sot, su sun, sv swe,
sw swa swh, ta tam, te tel, tg tgk, th tha, ti tir, tk tuk, tl tgl fil, tn tsn, to ton, tr tur, ts tso, tt tat,
tw twi, ty tah, ug uig, uk ukr ua, ur urd, uz uzb uzn, ve ven, vi vie vn, vo vol, wa wln, wo wol, xh xho,
yi yid ydd ji, yo yor, za zha, zh zho chi cmn cn zhs zht chs cht yue wuu nan hak gan hsn lzh cdo cjy mnp czh czo cpx,
zu zul
"""
# Members of a macrolanguage that are languages of their own, and not other names of it, such as Cantonese and Egyptian
# Arabic.
MEMBERS = frozenset({
    "ary", "arz", "apc", "ajp", "acm", "acq", "aeb", "ars", "azb", "ckb", "yue", "wuu", "nan", "hak", "gan", "hsn",
    "lzh", "cdo", "cjy", "mnp", "czh", "czo", "cpx",
})  # fmt: skip
# Names in English, in the language itself and in other languages, as they occur in the headers of tables.
_NAMES = """
af afrikaans, ak akan, am amharic, ar arabic العربية, as assamese, az azerbaijani, be belarusian,
bg bulgarian български, bn bengali bangla বাংলা, bo tibetan, br breton, bs bosnian, ca catalan català,
cs czech čeština česky, cy welsh, da danish dansk, de german deutsch allemand alemán, dz dzongkha, ee ewe,
el greek ελληνικά, en english englisch anglais inglés engels, eo esperanto,
es spanish español castellano spanisch espagnol, et estonian eesti, eu basque euskara, fa persian farsi فارسی,
fi finnish suomi, fo faroese, fr french français französisch francés, fy frisian, ga irish gaeilge,
gl galician galego, gn guarani, gu gujarati, ha hausa, he hebrew עברית, hi hindi हिन्दी, hr croatian hrvatski,
ht haitian, hu hungarian magyar, hy armenian, id indonesian indonesia, ig igbo, is icelandic íslenska,
it italian italiano italienisch italien, ja japanese 日本語 japanisch japonais, jv javanese, ka georgian, kk kazakh,
km khmer, kn kannada, ko korean 한국어, ku kurdish, ky kyrgyz, la latin, lb luxembourgish, lg luganda, ln lingala,
lo lao, lt lithuanian lietuvių, lv latvian latviešu, mg malagasy, mi maori, mk macedonian, ml malayalam, mn mongolian,
mr marathi, ms malay, mt maltese, my burmese, nb bokmål, ne nepali, nl dutch nederlands niederländisch,
no norwegian norsk, ny chichewa, oc occitan, om oromo, or odia oriya, pa punjabi, pl polish polski polnisch,
ps pashto, pt portuguese português portugiesisch, qu quechua, ro romanian română, ru russian русский russisch russe,
rw kinyarwanda, sa sanskrit, sd sindhi, si sinhala, sk slovak slovenčina, sl slovenian slovenščina, sn shona,
so somali, sq albanian shqip, sr serbian српски srpski, st sotho, su sundanese, sv swedish svenska,
sw swahili kiswahili, ta tamil தமிழ், te telugu, tg tajik, th thai ไทย, ti tigrinya, tk turkmen, tl tagalog filipino,
tr turkish türkçe, tt tatar, tw twi, ug uyghur, uk ukrainian українська, ur urdu اردو, uz uzbek, vi vietnamese,
wo wolof, xh xhosa, yi yiddish, yo yoruba, zh chinese mandarin 中文 chinesisch chinois, zu zulu
"""
_ROWS = [row.split() for row in _NAMES.split(",")]
ENGLISH_NAMES = {code: name.title() for code, name, *_ in _ROWS}
LANGUAGE_NAMES = {name: code for code, *names in _ROWS for name in names}
_CODES = {name: names[0] for names in map(str.split, _THREE_LETTERS.split(",")) for name in names}

# The first code of three letters, which is that of ISO 639-3.
_LONG_CODES = {names[0]: names[1] for names in map(str.split, _THREE_LETTERS.split(",")) if len(names) > 1}


@functools.lru_cache(maxsize=1024)
def language_code(name: str | None) -> str:
    """Return the two-letter code (ISO 639-1) of a language, given by name or by a code of two or three letters.

    A script or region after the code (`zho_Hans`, `pt-BR`, `zh_CN`) is ignored. For a language without a two-letter
    code, the result is the first part of the name in lower case.
    """
    return known_language(name) or first_part(name)


def own_code(name: str | None) -> str:
    """Return the code of a language as `language_code` does, but keep that of a member of a macrolanguage (`yue`)."""
    code = first_part(name)
    return code if code in MEMBERS else language_code(name)


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if no name is known."""
    return ENGLISH_NAMES.get(language_code(code), code)


def language_tag(name: str) -> str:
    """Return the tag of a language as OPUS writes it: `>>deu<<`, with the script if the name has one
    (`>>srp_Cyrl<<`). Members of macrolanguages keep their own code (`>>yue<<`)."""
    code, parts = own_code(name), re.split("[-_]", name.strip())[1:]
    script = "".join(f"_{part.title()}" for part in parts if re.fullmatch("[A-Za-z]{4}", part))
    return f">>{_LONG_CODES.get(code, code)}{script}<<"


def known_language(name: str | None) -> str | None:
    """Return the code as `language_code` does, or None for unknown languages."""
    return _CODES.get(first_part(name)) or LANGUAGE_NAMES.get(first_part(name))


def languages_named(name: str, known: Sequence[str]) -> list[str]:
    """Return the names under which a model may know a language; none or several if the language is not clear.

    Args:
        name: as a user writes it: `de`, `deu`, `deu_Latn` and `German` are the same. With another script, such as
            `srp_Latn` and `srp_Cyrl`, a language is another one.
        known: the names of the model.
    """
    spelled = plain_name(name)
    exact = next((one for one in known if plain_name(one) == spelled), None)
    if exact:
        return [exact]
    same, rest = _of_language(name, known), spelled.partition("_")[2]
    alike = [one for one in same if rest and plain_name(one).partition("_")[2] == rest]
    script = _script(name)
    return alike or [one for one in same if script is None or _script(one) in (None, script)]


def _of_language(name: str, known: Sequence[str]) -> list[str]:
    """Return the names with the code of a language; if there are none, those with another code of it."""
    same = [one for one in known if language_code(one) == language_code(name)]
    code = first_part(name)
    exact = [one for one in same if first_part(one) == code]
    return exact or [one for one in same if not {code, first_part(one)} & MEMBERS]


def is_same_language(name: str, other: str) -> bool:
    """Whether two names are of one language (see `languages_named`): `de` and `deu_Latn` are.

    Cantonese and Chinese are two languages, and so are the scripts of one, such as `srp_Latn` and `srp_Cyrl`.
    """
    return bool(languages_named(name, [other]))


def are_other(languages: Iterable[str | None], others: Iterable[str | None], only_recognised: bool = False) -> bool:
    """Whether the source or the target of two directions differs.

    An unknown language (None) differs from nothing. With `only_recognised`, a name that is not a known language, such
    as that of a group, differs from nothing either.
    """
    for pair in zip(languages, others, strict=True):
        counts = all(map(known_language, pair)) if only_recognised else all(pair)
        if counts and not is_same_language(*map(str, pair)):
            return True
    return False


def check_direction(
    name: object, languages: Sequence[str | None], other: object, others: Sequence[str | None], remedy: str
) -> None:
    """Refuse a model whose direction differs from that of another (see `are_other`).

    Args:
        name: the model, as the message names it.
        languages: its source and target language.
        other: the model that it is compared with.
        others: the source and target language of `other`.
        remedy: what the user should do, the end of the message.

    Raises:
        ModelError: the directions differ.
    """
    if are_other(languages, others):
        here, there = ("-".join(side or "?" for side in sides) for sides in (languages, others))
        raise ModelError(f"{name}: translates {here}, but {other} translates {there}; {remedy}")


def direction_name(sides: Iterable[str]) -> str:
    """Return the name of a direction, such as en-de."""
    return "-".join(sides)


def named_directions(name: str) -> Iterator[tuple[str, str]]:
    """Yield each source and target that a name such as `en-de` may contain: codes of languages may have hyphens too.

    As in all names of languages, `_` stands for a hyphen; of two hyphens and one `_`, a hyphen separates first.
    """
    for separator in "-_":
        parts = name.split(separator)
        for place in range(1, len(parts)):
            yield separator.join(parts[:place]), separator.join(parts[place:])


def first_part(name: str | None) -> str:
    """Return the code in the name of a language, before its script or region, in lower case."""
    return re.split(r"[-_.@(]", (name or "").strip().lower(), maxsplit=1)[0].strip()


def _script(name: str) -> str | None:
    """Return the script in the name of a language, such as `latn`; None without one."""
    return next((part for part in plain_name(name).split("_")[1:] if len(part) == 4 and part.isalpha()), None)


def plain_name(name: str) -> str:
    """Return the name of a language in the spelling that is compared: `zh_tw` for `zh-TW`."""
    return name.strip().casefold().replace("-", "_")
