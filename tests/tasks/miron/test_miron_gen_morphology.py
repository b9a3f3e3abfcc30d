"""miron-gen's Morphology: the rules equal hand-worked tables, and drafts satisfy the contract of items."""

import re
import unicodedata
from collections import Counter
from functools import cache
from types import ModuleType

import pytest

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.miron_gen import english_morphology as english
from miron_jax.tasks.generators.miron_gen import russian_morphology as russian
from miron_jax.tasks.generators.miron_gen.draft import Draft

LANGUAGES = [pytest.param(english, id="en"), pytest.param(russian, id="ru")]
SCRIPT = {english: "LATIN", russian: "CYRILLIC"}

# stem: plural, third, past, ing, comparative, superlative, agent, possessive, adverb
ENGLISH_FORMS = {
    "prax": "praxes praxes praxed praxing praxer praxest praxer prax's praxly",
    "frozz": "frozzes frozzes frozzed frozzing frozzer frozzest frozzer frozz's frozzly",
    "glish": "glishes glishes glished glishing glisher glishest glisher glish's glishly",
    "dretch": "dretches dretches dretched dretching dretcher dretchest dretcher dretch's dretchly",
    "glompy": "glompies glompies glompied glompying glompier glompiest glompier glompy's glompily",
    "droy": "droys droys droyed droying droyer droyest droyer droy's droyly",
    "vope": "vopes vopes voped voping voper vopest voper vope's vopely",
    "stib": "stibs stibs stibbed stibbing stibber stibbest stibber stib's stibly",
    "flisk": "flisks flisks flisked flisking flisker fliskest flisker flisk's fliskly",
    "stoob": "stoobs stoobs stoobed stoobing stoober stoobest stoober stoob's stoobly",
    "drow": "drows drows drowed drowing drower drowest drower drow's drowly",
}

# stem: plural, past, ing, comparative, adverb, each as a learner might get it wrong
ENGLISH_MISSPELT = {
    "frozz": "frozzs frozed frozing frozer frozzily",
    "glish": "glishs glishhed glishhing glishher glishily",
    "glompy": "glompys glompyed glompiing glompyer glompyly",
    "droy": "droies droied droiing droier droily",
    "vope": "vopees vopeed vopeing vopeer vopily",
    "stib": "stibes stibed stibing stiber stibbly",
    "flisk": "fliskes fliskked fliskking fliskker fliskily",
}

# lemma: its forms in the order of FORMS
RUSSIAN_FORMS = {
    "лупад": "лупада лупаду лупадом лупаде лупады лупадов лупадам лупадами лупадах",
    "глок": "глока глоку глоком глоке глоки глоков глокам глоками глоках",
    "бирг": "бирга биргу биргом бирге бирги биргов биргам биргами биргах",
    "мадух": "мадуха мадуху мадухом мадухе мадухи мадухов мадухам мадухами мадухах",
    "лупата": "лупаты лупате лупату лупатой лупате лупаты лупат лупатам лупатами лупатах",
    "никуга": "никуги никуге никугу никугой никуге никуги никуг никугам никугами никугах",
    "клумака": "клумаки клумаке клумаку клумакой клумаке клумаки клумак клумакам клумаками клумаках",
    "фуриха": "фурихи фурихе фуриху фурихой фурихе фурихи фурих фурихам фурихами фурихах",
    "глодатый": "глодатого глодатому глодатым глодатом глодатая глодатой глодатую глодатое "
    "глодатые глодатых глодатым глодатыми",
    "кидувать": "кидуваю кидувает кидувают кидувал кидувала кидувало кидували",
}


@cache
def draft_of(module: ModuleType, i: int) -> Draft:
    return module.draft(Draw("test", i), module.BENCHMARK)


def drafts(module: ModuleType, count: int) -> list[Draft]:
    return [draft_of(module, i) for i in range(count)]


def words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", text)


def stems(material: english.Material | russian.Material) -> list[str]:
    groups = [material.stems] if isinstance(material, english.Material) else material.stems.values()
    return [stem for group in groups for stem in group]


def all_forms(module: ModuleType, stem: str) -> set[str]:
    if module is english:
        return {stem} | {english.inflect(stem, form) for form in english.FORMS}
    forms = [form for form in russian.FORMS if form.startswith(russian.family(stem))]
    return {stem} | {russian.inflect(stem, form) for form in forms}


@pytest.mark.parametrize("stem", ENGLISH_FORMS)
def test_english_forms_by_hand(stem):
    assert [english.inflect(stem, form) for form in english.FORMS] == ENGLISH_FORMS[stem].split()


@pytest.mark.parametrize(
    ("stem", "plural"),
    [
        ("blis", "blises"),
        ("flax", "flaxes"),
        ("blitz", "blitzes"),
        ("stash", "stashes"),
        ("trench", "trenches"),
        ("try", "tries"),
        ("ruby", "rubies"),
        ("tray", "trays"),
        ("decoy", "decoys"),
        ("cloth", "cloths"),
    ],
)
def test_english_plurals_by_hand(stem, plural):
    assert english.inflect(stem, "plural") == english.inflect(stem, "third") == plural


@pytest.mark.parametrize("stem", ENGLISH_MISSPELT)
def test_english_misspellings_by_hand(stem):
    forms = ("plural", "past", "ing", "comparative", "adverb")
    assert [english.misspell(stem, form) for form in forms] == ENGLISH_MISSPELT[stem].split()


def test_the_wrong_possessive_is_that_of_several_owners():
    assert [english.misspell(stem, "possessive") for stem in ("flisk", "glompy")] == ["flisks'", "glompies'"]


def test_forms_of_two_spellings_are_excluded():
    stem_of = {english.ending(stem): stem for stem in english.BENCHMARK_STEMS}
    assert [kind for kind, stem in stem_of.items() if not english.fits(stem, "possessive")] == ["sibilant"]
    assert [kind for kind, stem in stem_of.items() if not english.fits(stem, "adverb")] == ["vowel_y"]
    assert len(stem_of) == 6


@pytest.mark.parametrize("lemma", RUSSIAN_FORMS)
def test_russian_forms_by_hand(lemma):
    forms = [form for form in russian.FORMS if form.startswith(russian.family(lemma))]
    assert [russian.inflect(lemma, form) for form in forms] == RUSSIAN_FORMS[lemma].split()


def test_russian_spelling_rule_holds_for_wrong_endings_too():
    assert russian.misinflect("глок", "masculine_plural_nominative") == ("глок", "глокы", "глоков")
    assert russian.misinflect("лупад", "masculine_plural_nominative") == ("лупад", "лупади", "лупадов")
    assert russian.misinflect("никуга", "feminine_genitive") == ("никуга", "никугы", "никугой")
    assert russian.misinflect("лупата", "feminine_plural_genitive") == ("лупата", "лупатов", "лупатам")


def test_russian_lemmas_keep_to_what_the_tables_cover():
    for material in (russian.BENCHMARK, russian.TRAINING):
        roots = {family: [russian.root(lemma) for lemma in lemmas] for family, lemmas in material.stems.items()}
        assert not [root for group in roots.values() for root in group if re.search("[жшчщцйьъ]$|[гкх]ы", root)]
        assert not [root for root in roots["masculine"] if re.search("[ое].$|и[нв]$|[ыо]в$|ын$|род$", root)]
        assert not [root for root in roots["feminine"] if re.search("[бвгджзклмнпрстфх]{2}$|[иы]н$|[оеи]в$", root)]
        assert not [root for root in roots["adjective"] if re.search("[гкх]$|лн$", root)]
        assert not [root for root in roots["verb"] if re.search("[оеиыа]в$|[дзсткхпб]$|ор$", root)]


@pytest.mark.parametrize("module", LANGUAGES)
def test_every_draft_is_well_formed(module):
    for draft in drafts(module, 1000):
        answers = [draft.target, *draft.distractors]
        assert len(set(answers)) == 4
        for text in answers:
            assert re.fullmatch(r" [^\W\d_]+('s?)?", text)
            assert all(unicodedata.name(letter).startswith(SCRIPT[module]) for letter in text if letter.isalpha())
        assert all(unicodedata.is_normalized("NFC", text) for text in (draft.prefix, *answers))
        assert draft.prefix == draft.prefix.strip()
        assert "  " not in draft.prefix
        assert "{" not in draft.prefix


@pytest.mark.parametrize("module", LANGUAGES)
def test_the_prefix_shows_the_stem_and_never_the_answer(module):
    for draft in drafts(module, 1000):
        prefix_words = words(draft.prefix)
        assert dict(draft.meta)["stem"] in prefix_words
        assert draft.target.strip() not in prefix_words


@pytest.mark.parametrize("module", LANGUAGES)
def test_no_frame_shows_its_answer(module):
    """Every wording of both sides, with one stem each: the drafts above need not cover all of them."""
    for material in (module.BENCHMARK, module.TRAINING):
        for form, frames in material.frames.items():
            stem = "flisk" if module is english else material.stems[form.partition("_")[0]][0]
            slots = {name: options[0] for name, options in module.SLOTS.items()} | {"stem": stem, "lemma": stem}
            if module is english:
                slots |= {name: english.inflect(stem, name) for name in english.FORMS}
            for frame in frames:
                frame_words = words(frame.format(**slots))
                assert stem in frame_words
                assert module.inflect(stem, form) not in frame_words


@pytest.mark.parametrize("module", LANGUAGES)
def test_training_shares_no_word_and_no_frame_with_the_benchmark(module):
    benchmark, training = (
        {form for stem in stems(material) for form in all_forms(module, stem)}
        for material in (module.BENCHMARK, module.TRAINING)
    )
    assert benchmark.isdisjoint(training)
    wordings = [
        frame for material in (module.BENCHMARK, module.TRAINING) for f in material.frames.values() for frame in f
    ]
    assert len(wordings) == len(set(wordings))


@pytest.mark.parametrize("module", LANGUAGES)
def test_no_form_belongs_to_two_stems(module):
    both = stems(module.BENCHMARK) + stems(module.TRAINING)
    count = Counter(form for stem in both for form in all_forms(module, stem))
    assert {form for form, times in count.items() if times > 1} == set()


@pytest.mark.parametrize("module", LANGUAGES)
def test_stem_lists_are_sorted_and_in_one_script(module):
    groups = [m.stems for m in (module.BENCHMARK, module.TRAINING)]
    lists = groups if module is english else [group for families in groups for group in families.values()]
    for group in lists:
        assert list(group) == sorted(set(group))
        assert all(unicodedata.name(letter).startswith(SCRIPT[module] + " SMALL") for stem in group for letter in stem)


@pytest.mark.parametrize(("module", "num_frames"), [(english, 8), (russian, 3)])
def test_there_are_frames_enough(module, num_frames):
    assert list(module.FRAMES) == list(module.TRAINING_FRAMES) == list(module.FORMS)
    assert min(map(len, module.FRAMES.values())) >= num_frames
    assert min(map(len, module.TRAINING_FRAMES.values())) >= 3
    families = Counter(form.partition("_")[0] for form in module.FORMS for _ in module.FRAMES[form])
    assert min(families.values()) >= 8


@pytest.mark.parametrize("module", LANGUAGES)
def test_500_drafts_spread_over_all_forms(module):
    """Uniform: 500 / 9 = 56 and 500 / 38 = 13 a form; four standard deviations are 28 and 14."""
    count = Counter(dict(draft.meta)["form"] for draft in drafts(module, 500))
    expected = 500 / len(module.FORMS)
    assert set(count) == set(module.FORMS)
    assert all(abs(times - expected) < 4 * expected**0.5 for times in count.values())


@pytest.mark.parametrize("module", LANGUAGES)
def test_prefixes_rarely_repeat(module):
    assert len({draft.prefix for draft in drafts(module, 2000)}) > 1850


@pytest.mark.parametrize("module", LANGUAGES)
def test_training_drafts_are_made_of_training_material_alone(module):
    allowed = set(stems(module.TRAINING))
    made = [module.draft(Draw("training", i), module.TRAINING) for i in range(200)]
    assert {dict(draft.meta)["stem"] for draft in made} <= allowed
    assert {draft.template.partition("/")[0] for draft in made} <= set(module.FORMS)
