"""miron-gen's Morphology: the rules equal hand-worked tables, and drafts satisfy the contract of items."""

import re
from types import ModuleType

import pytest

from miron_jax.tasks.draw import Stream
from miron_jax.tasks.generators.miron_gen import english_morphology as english
from miron_jax.tasks.generators.miron_gen import russian_morphology as russian

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


def test_english_forms_by_hand() -> None:
    for stem, forms in ENGLISH_FORMS.items():
        assert [english.inflect(stem, form) for form in english.FORMS] == forms.split()
    plurals = "blises flaxes blitzes stashes trenches tries rubies trays decoys cloths"
    stems = ["blis", "flax", "blitz", "stash", "trench", "try", "ruby", "tray", "decoy", "cloth"]
    assert [english.inflect(stem, "plural") for stem in stems] == plurals.split()
    assert [english.inflect(stem, "third") for stem in stems] == plurals.split()


def test_english_misspellings_by_hand() -> None:
    for stem, misspelt in ENGLISH_MISSPELT.items():
        forms = ("plural", "past", "ing", "comparative", "adverb")
        assert [english.misspell(stem, form) for form in forms] == misspelt.split()
    # The wrong possessive is that of several owners.
    assert [english.misspell(stem, "possessive") for stem in ("flisk", "glompy")] == ["flisks'", "glompies'"]


def test_forms_of_two_spellings_are_excluded() -> None:
    stem_of = {english.ending(stem): stem for stem in english.BENCHMARK_STEMS}
    assert [kind for kind, stem in stem_of.items() if not english.fits(stem, "possessive")] == ["sibilant"]
    assert [kind for kind, stem in stem_of.items() if not english.fits(stem, "adverb")] == ["vowel_y"]


def test_russian_forms_by_hand() -> None:
    for lemma, expected in RUSSIAN_FORMS.items():
        forms = [form for form in russian.FORMS if form.startswith(russian.family(lemma))]
        assert [russian.inflect(lemma, form) for form in forms] == expected.split()
    # Wrong endings follow the spelling rule too.
    assert russian.misinflect("глок", "masculine_plural_nominative") == ("глок", "глокы", "глоков")
    assert russian.misinflect("лупад", "masculine_plural_nominative") == ("лупад", "лупади", "лупадов")
    assert russian.misinflect("никуга", "feminine_genitive") == ("никуга", "никугы", "никугой")
    assert russian.misinflect("лупата", "feminine_plural_genitive") == ("лупата", "лупатов", "лупатам")


@pytest.mark.parametrize("module", [english, russian], ids=["en", "ru"])
def test_drafts_show_the_stem_and_never_the_answer_and_training_shares_no_stem(module: ModuleType) -> None:
    stems, forms, frames = [], [], []
    for material in (module.BENCHMARK, module.TRAINING):
        drafts = [module.draft(Stream("test", i), material) for i in range(300)]
        for draft in drafts:
            prefix_words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", draft.prefix)
            assert dict(draft.meta)["stem"] in prefix_words
            assert draft.target.strip() not in prefix_words
            assert len({draft.target, *draft.distractors}) == 4
        stems.append({dict(draft.meta)["stem"] for draft in drafts})
        forms.append({draft.target for draft in drafts})
        frames.append({frame for of_form in material.frames.values() for frame in of_form})
    assert stems[0].isdisjoint(stems[1])
    assert forms[0].isdisjoint(forms[1])
    assert frames[0].isdisjoint(frames[1])
