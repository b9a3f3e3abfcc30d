"""Makes en/stems.txt and ru/stems.txt anew; for development only, no run needs it.

Needs: pip install wordfreq==3.1.1 pymorphy3==2.0.6 pymorphy3-dicts-ru==2.4.417150.4580142, then
`python tools/freeze_stems.py` in an environment with those and this project.  Arrives: sounds
and word lists.  Leaves: the two files, each the benchmark's stems, a blank line, the training
stems.  It deliberately does not know frames.  It imports the rules from the two modules that read
the lists, so both files must exist; their content does not matter.  New lists are a new benchmark:
every item and golden changes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import product
from pathlib import Path

import pymorphy3  # pyright: ignore[reportMissingImports]
import wordfreq  # pyright: ignore[reportMissingImports]

from miron_jax.tasks.generators.miron_gen import english_morphology as english
from miron_jax.tasks.generators.miron_gen import russian_morphology as russian

FOLDER = Path(__file__).parent.parent / "tasks" / "generators" / "miron_gen"

NUM_ENGLISH = 1200  # every third stem goes to training
NUM_RUSSIAN = 360  # of each family
# no stem lies within one edit of these; short ones would leave few
NUM_COMMON_WORDS = {"en": 3000, "ru": 20_000}

_ENGLISH_ONSETS = """b bl br ch cl cr d dr f fl fr g gl gr h j k l m n p pl pr r s sh shr sk sl sm sn sp spl spr st str
    sw t th thr tr tw v w z"""  # noqa: E501

# Nucleus and coda together, less those whose commonest words inflect irregularly or are themselves
# inflected forms: -ing -ink -ind -eep -ow -ake -ide -et -un -elt -est -orn -old -us -um and their
# like.
_ENGLISH_RIMES = {
    "sibilant": """ass ess iss oss ash esh ish osh ush atch etch itch otch utch anch ench inch onch unch ax ex ix ox azz
        ezz izz ozz uzz""",  # noqa: E501
    "consonant_y": """abby ebby ibby obby ubby addy eddy iddy oddy uddy aggy eggy iggy oggy uggy ammy emmy immy ommy ummy
        anny enny inny onny unny appy eppy ippy oppy uppy ampy empy impy ompy umpy anty enty inty onty unty andy endy
        indy ondy undy arty erty irty urty alky elky ilky olky ulky asky esky isky osky usky asty isty osty usty""",  # noqa: E501
    "vowel_y": "oy ey",
    "silent_e": "abe ade ane ape aze ibe ime ipe ize obe ope ube ude uke ume une upe ute uze",
    "doubling": "ab eb ib ob ub ag eg og am em om ap ep ip op up",
    "plain": """ack eck ick ock amp emp imp omp ump ant int ont unt ist ost ask esk isk osk usk alk elk ilk olk ulk alm elm
        ilm art ert irt ort ark erk irk ork arp erp orp urp arm erm irm orm arn ern urn asp esp isp osp usp aft ift oft
        uft""",  # noqa: E501
}

# Sounds of words that nobody wants to read, and a few that an invented word should not bring to
# mind; only those that onsets and rimes can make.
_ENGLISH_BLOCKED = re.compile(
    "fup|shit|shis|[^aei]unt$|dick|prick|tit|twa[bpt]|slut|nig|neg|fag|spic|chin[kc]|wog|wop|jiz|hiz|pi[sz]|rap|hom|sex"
    "|bitch|jap|crap|fart|tran|sp[re]*er[mn]|shag|spas|spaz|spess|slag|slop|bugg|bum|pimp|thug|strip|drug|drun[nk]|rot|chub"
    "|fat|hun|snatch|smeg|gimm|gimp|poz|pub|smut|cretc|thro[bt]|clit|swast|lez|guk|kuk"
)

_RUSSIAN_ONSETS = "б в г д з к л м н п р с т ф х бл бр гл гр др кл кр пл пр тр"
_RUSSIAN_FINALS = {
    "masculine": "бгдзкмнпрстфх",
    "feminine": "бгдзкмнпрстфх",
    "adjective": "бдзмрст",
    "verb": "глмнр",
}
_RUSSIAN_SUFFIX = {
    "masculine": ("",),
    "feminine": ("а",),
    "adjective": ("ный", "истый", "атый"),
    "verb": ("ать",),
}

# Roots that would read as a prefixed or inflected word, a surname, a gerund or one that loses a
# vowel.
_RUSSIAN_PREFIXES = re.compile("по|на|за|до|не|ни|со|ра[зс]|ро[зс]|про|пре|при|бе[зс]")
_RUSSIAN_BAD_ENDS = {
    "masculine": re.compile("(о.|и[нтмх]|ут|ам|ах)$"),
    "feminine": re.compile("(о[ктр]|ин)$"),
    "adjective": re.compile("ин$"),
    "verb": re.compile("(ор|он)$"),
}
_RUSSIAN_BLOCKED = re.compile(
    "еб|муд|сук|п[ие]д|хер|сос|трах|лох|дур|гад|дебил|кал|лоб[ко]|пук|поп|пис|труп|нар[ик]|наз[ис]|бух|убиб|кака|зоп|дрис"
    "|си[ск]|вагин|ану|пен[иу]|гул[ао]г|туп|глуп|блев|хохо|рак|кун[аи]|труса"
)
_CASES = {
    "genitive": "gent",
    "dative": "datv",
    "accusative": "accs",
    "instrumental": "ablt",
    "prepositional": "loct",
}


def edits(word: str, alphabet: str) -> Iterator[str]:
    """Every text one insertion, deletion, replacement or swap of neighbours away."""
    for i in range(len(word) + 1):
        head, tail = word[:i], word[i:]
        yield from (head + letter + tail for letter in alphabet)
        if tail:
            yield head + tail[1:]
            yield from (head + letter + tail[1:] for letter in alphabet)
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]


def close_to_common_word(language: str, alphabet: str) -> Callable[[str], bool]:
    common = frozenset(wordfreq.top_n_list(language, NUM_COMMON_WORDS[language]))
    return lambda stem: not common.isdisjoint(edits(stem, alphabet))


def hash_order(stems: Iterable[str]) -> list[str]:
    return sorted(stems, key=lambda stem: sha256(stem.encode()).digest())


def english_forms(stem: str) -> set[str]:
    inflected = {english.inflect(stem, form) for form in english.FORMS}
    misspelt = {english.misspell(stem, form) for form in english.FORMS}
    return {stem} | inflected | {word for word in misspelt if "'" not in word}


def english_candidates(kind: str) -> list[str]:
    """Stems of a spelling class that suggest no English word, in an order without meaning."""
    known = wordfreq.get_frequency_dict("en", wordlist="best")
    is_close = close_to_common_word("en", "abcdefghijklmnopqrstuvwxyz")
    stems = map("".join, product(_ENGLISH_ONSETS.split(), _ENGLISH_RIMES[kind].split()))
    return hash_order(
        stem
        for stem in stems
        if not is_close(stem)
        and not _ENGLISH_BLOCKED.search(stem)
        and not any(wordfreq.zipf_frequency(base, "en") > 2.5 for base in english_bases(stem))
        and known.keys().isdisjoint(english_forms(stem))
    )


def english_bases(stem: str) -> tuple[str, ...]:
    """Words that a stem in -y might seem to derive from: snubby from snub, dusky from dusk."""
    return (stem[:-1], stem[:-2]) if english.ending(stem) == "consonant_y" else ()


def russian_forms(lemma: str) -> set[str]:
    kind = russian.family(lemma)
    forms = [form for form in russian.FORMS if form.startswith(kind)]
    right = {russian.inflect(lemma, form) for form in forms}
    return right | {word for form in forms for word in russian.misinflect(lemma, form)}


def russian_roots(kind: str) -> Iterator[str]:
    """CVCVC; е in first syllables only, since a last one tends to drop out or to turn into ё."""
    finals = _RUSSIAN_FINALS[kind]
    for onset, first, middle, last, final in product(
        _RUSSIAN_ONSETS.split(), "аоуие", "бвгдзклмнпрстх", "аоуи", finals
    ):
        root = onset + first + middle + last + final
        if not _RUSSIAN_PREFIXES.match(root) and not _RUSSIAN_BAD_ENDS[kind].search(root):
            yield root


def russian_candidates(kind: str) -> list[str]:
    lemmas = (root + suffix for root in russian_roots(kind) for suffix in _RUSSIAN_SUFFIX[kind])
    return hash_order(lemma for lemma in lemmas if not _RUSSIAN_BLOCKED.search(lemma))


def sound_russian() -> Callable[[str], bool]:
    """A test for lemmas: unknown to both word lists in every form, and never inflected otherwise by
    pymorphy3."""
    known = wordfreq.get_frequency_dict("ru", wordlist="best")
    is_close = close_to_common_word("ru", "абвгдеёжзийклмнопрстуфхцчшщъыьэюя")
    analyzer = pymorphy3.MorphAnalyzer(lang="ru")

    def sound(lemma: str) -> bool:
        forms = russian_forms(lemma)
        if (
            is_close(lemma)
            or not known.keys().isdisjoint(forms)
            or any(map(analyzer.word_is_known, forms))
        ):
            return False
        return agrees(analyzer, lemma)

    return sound


def agrees(analyzer: pymorphy3.MorphAnalyzer, lemma: str) -> bool:
    """False if pymorphy3's best guess for a noun of this gender declines it otherwise; true if it
    has no such guess."""
    kind = russian.family(lemma)
    gender = {"masculine": {"masc", "inan"}, "feminine": {"femn", "inan"}}.get(kind)
    parse = next(
        (p for p in analyzer.parse(lemma) if gender and {"NOUN", "nomn", "sing"} | gender in p.tag),
        None,
    )
    if parse is None:
        return True
    grammemes = {f"plural_{name}": {"plur", case} for name, case in _CASES.items()}
    grammemes |= {name: {"sing", case} for name, case in _CASES.items()} | {
        "plural_nominative": {"plur", "nomn"}
    }
    return all(
        (other := parse.inflect(case)) is None
        or other.word == russian.inflect(lemma, f"{kind}_{name}")
        for name, case in grammemes.items()
        if f"{kind}_{name}" in russian.FORMS
    )


def take(
    queues: Mapping[str, Iterator[str]], count: int, forms: Callable[[str], set[str]]
) -> dict[str, list[str]]:
    """`count` stems, from each queue in turn while it lasts; none has a form in common with
    another."""
    stems_of: dict[str, list[str]] = {kind: [] for kind in queues}
    seen: set[str] = set()
    left = list(queues)
    while left and sum(map(len, stems_of.values())) < count:
        kind = left.pop(0)
        stem = next((stem for stem in queues[kind] if seen.isdisjoint(forms(stem))), None)
        if stem is not None:
            stems_of[kind].append(stem)
            seen |= forms(stem)
            left.append(kind)
    return stems_of


def write(name: str, stems_of: Mapping[str, list[str]]) -> None:
    """Write the benchmark's stems and the training stems, which are every third one of each
    kind."""
    training = [stem for stems in stems_of.values() for stem in stems[2::3]]
    benchmark = [stem for stems in stems_of.values() for i, stem in enumerate(stems) if i % 3 < 2]
    text = "\n\n".join("\n".join(sorted(stems)) for stems in (benchmark, training)) + "\n"
    (FOLDER / name).write_text(text, encoding="utf-8")


def main() -> None:
    queues = {kind: iter(english_candidates(kind)) for kind in _ENGLISH_RIMES}
    write("en/stems.txt", take(queues, NUM_ENGLISH, english_forms))
    sound = sound_russian()
    queues = {kind: filter(sound, russian_candidates(kind)) for kind in _RUSSIAN_SUFFIX}
    write("ru/stems.txt", take(queues, NUM_RUSSIAN * len(queues), russian_forms))


if __name__ == "__main__":
    main()
