"""What the demo model reads: documents of one sentence or item each, in English and Russian.

Arrives: a purpose and a seed.  Leaves: `Document`s without end, the same on every machine.  It deliberately does not
know tokenizers or models.

It is the training side of miron_gen, widened: its training stems and more of the kind, its facts, the series that the
benchmark never asks; and to its few training wordings many are added, for a model that meets an ability in three
wordings and with four hundred stems learns just those.  None of it is a wording or a stem of the benchmark; tests hold
that.

In a wording [a|b|c] stands for one of these; all choices of a wording are written out when the module is imported.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, product
from typing import NamedTuple, TypeVar

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.generators.miron_gen import (
    english_logic,
    english_morphology,
    facts,
    logic,
    russian_logic,
    russian_morphology,
)
from miron_jax.tasks.generators.miron_gen.draft import Draft

Form = TypeVar("Form", bound=str)


class Document(NamedTuple):
    text: str
    language: str  # "en" or "ru"
    category: str  # as the benchmark calls it
    asked: int  # character at which the part begins that a reader could know; what stands before is drawn
    root: str  # what all forms of the invented word begin with; "" where nothing is invented


# Of twelve documents.  Facts are few and short; endings and series want many examples.
_CATEGORIES = ("Morphology",) * 5 + ("Facts",) * 3 + ("Logic",) * 4
_LANGUAGES = ("en",) * 7 + ("ru",) * 5

# fmt: off
# Sounds of more stems.  Few words of the language are made like these, and what it has is spelt regularly.
_ENGLISH_ONSETS = "bl br dr fl fr gl gr kl kr pl pr shr skr skw sl sm sn sp spl st str thr tr v vr y z zl"
_ENGLISH_RIMES = """
    esh osh atch etch otch anch ench onch ax ix ox uzz ezz ozz iss oss abby ebby obby emmy ommy inny onny uppy
    oppy impy ompy enty onty endy undy arty erty alky elky ulky isty osty oy ey abe ade ane aze ibe ime ize obe
    ope ude uke une ute ab eb ib ob ub em om ep op im eck ock amp emp omp ont ost ask olk ulk elm irt ort erk irk
    arp orp orm arn ern asp isp osp ift oft"""
_RUSSIAN_ONSETS = "б в г д з к л м н п р с т ф х бл бр гл гр др кл кр пл пр тр"
_RUSSIAN_ENDS = {"masculine": ("",), "feminine": ("а",), "adjective": ("ный", "истый", "атый"), "verb": ("ать",)}
_RUSSIAN_FINALS = {"masculine": "бгдзкмнпрстфх", "feminine": "бгдзкмнпрстфх", "adjective": "бдзмрст", "verb": "глмнр"}
_NUM_RUSSIAN = 1500  # stems drawn of each family

_ENGLISH_FRAMES = {
    "plural": (
        "[Yesterday|In May|At first] we had [one|only one|a single] {stem}. [Now|This week] we have "
            "[{count}|many|hundreds of]",
        "You can [see|hear|buy] one {stem} [here|there]. [The shop|My aunt|The market] has [{count}|plenty "
            "of|dozens of|thousands of]",
        "This {stem} is [big|old|slow|blue], and so are [those|these|the other|both]",
        "{boy} [has|keeps|wants] a {stem}. {girl} [has|keeps|wants] [two|{count}|a pair of|lots of]",
        "A {stem} came in. Then came [{count}|some other|many more|a crowd of]",
    ),
    "third": (
        "[We|They|The boys] {stem} [all day|in the rain|at home]. {girl} [also|always|seldom|never|often]",
        "To {stem} is [fun|hard|good]. [That is why {boy}|So she often|And now and then he|Every Monday {girl}]",
        "[I|You|We] {stem}, [but|and|while] [{boy}|{girl}|my uncle|the old man|this horse] [also|often|hardly "
            "ever|never|always]",
        "When [they|we|the dogs] {stem}, [she also|he always|our cat never|the little machine often|{girl} sometimes]",
        "[Some|All] [men|cows|toys] {stem}. [This man|That cow|Our toy|The small one] [never|always|sometimes|really]",
    ),
    "past": (
        "[I|We|They] {stem} every [day|week|year]. [Yesterday|Last night|A year ago|On Monday] "
            "[I|we|they|he|she] [also|only|again]",
        "{girl} [wants|likes|has] to {stem}. [Last week|Long ago|An hour ago|Last summer] she [|often |really "
            "|suddenly ]",
        "[When we were young|In those days|Before the war], [we|people|my parents] could {stem}, so "
            "[we|they|everybody] [often|always|happily]",
        "{boy} [promised|agreed|hoped] to {stem}. [Then|After that|In the end|At last] he "
            "[quickly|really|finally|slowly|]",
        "[We|I] shall {stem} [tonight|next week]. [Last month|In those years|That evening] [we|I|nobody|all of us]",
    ),
    "ing": (
        "[We|They] {stem} [now|again|today]. [Look|Listen|You see], [we|they] are [still|all|really]",
        "{girl} [likes to|wants to|has to] {stem}. [Right now|Today|This minute] she is [again|busy|still]",
        "[I|We] [must|should] {stem} less. [I should stop|It is time to give up|We are tired of|It is bad to go on]",
        "[He|She] [began|tried] to {stem} and [still keeps|soon finished|kept on|went on|later stopped]",
        "My [brother|sister] can not {stem}. [He hates|She avoids|They dislike|But I love|We practise]",
        "[Do not|Never] {stem} [here|at night]! [No|Stop|Quit all this]",
    ),
    "comparative": (
        "[This|My] [tea|bed|coat] is {stem}, but [that one|the other|his] is [even|still|much|far]",
        "{boy} is {stem}. {girl} is [even|much|a lot|far|so much]",
        "The [sea|town|wind] was {stem}. [Now|Today|By evening] it is [much|even|so much|a lot|ten times|a good deal]",
        "[The tea|The wind|The cat] is {stem}, and [every day|each hour] it gets [even|still|a lot]",
        "Is it {stem}? [Yes, nothing can be|Yes, no thing is] any",
        "The [river|bread|wall] is {stem}. The [longer|more] you look at it, the",
    ),
    "superlative": (
        "All the [cats|roads|rooms|girls] are {stem}, but [this one|mine|the last one|{girl}] is [the|by far "
            "the|certainly the|simply the]",
        "{girl} is {stem}. [In our town|Among her friends|Of all of us|In the whole world] she is [the|easily "
            "the|clearly the|one of the]",
        "[We saw|They sold us] {count} {stem} [rooms|cows|cups]. The [first|red|left] one was [the|the very|by "
            "far the]",
        "So {stem} a [day|road|song] is rare. It was [simply|surely|perhaps] the",
        "One is {stem}, one is {comparative}, and one is the",
    ),
    "agent": (
        "[Bakers bake|Drivers drive|Hunters hunt|Painters draw]. [A man|A woman|One] who [can|must|likes to] "
            "{stem} is [a|called a|surely a]",
        "[We need|They hired|She found] somebody to {stem}: [a|a good|no other than the best|a real]",
        "I {stem} [for money|at work|every day], so [I am a|you may call me a|people call me a|by trade I am a]",
        "{girl} [wants to|can] {stem}. [One day|Soon] she will be a [good|famous|real|true]",
        "A singer has to sing and a [great|good] {agent} has to {stem}. [{boy}|{girl}] is a",
        "A [worker works|farmer farms|speaker speaks]. [They|We] {stem}: each of [them|us] is a",
    ),
    "possessive": (
        "This is a {stem}. [That door is|This bed is|These toys are|All this is] the",
        "The [door|bed|egg|hat] [belongs to|is for] the {stem}: it is the",
        "{boy}'s hat is [red|new]. The {stem} has a hat too, [and the old hat is|so the other hat is] the",
        "A cow and a {stem} [met|live here|came in]. One [bag|house|plate] is the cow's, [and the other one "
            "is|but the second is] the",
        "[Whose|I know whose] [nest|ear|cup] it is. I [think of|see] our {stem}, so it [is|must be|can only be] our",
        "The bird's [food|place|song] is [not|never] the [same as|one like] the {stem}'s. This one is the",
    ),
    "adverb": (
        "{boy} is {stem}, so he [walks|works|eats|smiles] [very|so|quite|as]",
        "A sad man sings sadly. A {stem} man sings [just as|as|very|]",
        "A loud girl laughs loudly, and a {stem} girl laughs [|very|so|just as]",
        "The [song|talk|game] was {stem}. [She sang|They played|He spoke|Nobody worked] [very|so|rather|more]",
        "[Be|Do not be] {stem}! [Speak|Write|Drive] [more|less|very]",
        "{girl} has a {stem} [smile|face|dog]. [She smiles|It looks at me|He runs] [so|very|quite]",
    ),
}

# A preposition or verb asks for the case, a demonstrative repeats it.
_RUSSIAN_CASES = {
    "genitive":
        "[Мы долго шли от|Рядом нет|Все отошли от|Он боится|Пыль летит из-за|Она стоит около|Мне жаль|Кот вышел из]",
    "dative": "[Дети бегут к|Мы рады|Он привык к|Они верят|Она помогает|Надо подойти к]",
    "accusative": "[Мы нашли|Она любит|Он купил|Дайте мне|Я помню|Мы смотрим на|Дети рисуют]",
    "instrumental": "[Она гордится|Кот сидит под|Мы стоим перед|Он занят|Птица летит над|Все довольны]",
    "prepositional": "[Мы думаем о|Он сидит на|Песня поётся о|Книга лежит в|Я забыл о|Она мечтает о]",
}
_RUSSIAN_THESE = {
    "masculine": {"genitive": "[этого|того|такого]", "dative": "[этому|тому|такому]",
                  "instrumental": "[этим|тем|таким]", "prepositional": "[этом|том|таком]"},
    "feminine": {"genitive": "[этой|той|такой]", "dative": "[этой|той|такой]", "accusative": "[эту|ту|такую]",
                 "instrumental": "[этой|той|такой]", "prepositional": "[этой|той|такой]"},
    "plural": {"genitive": "[этих|тех|таких]", "dative": "[этим|тем|таким]", "instrumental": "[этими|теми|такими]",
               "prepositional": "[этих|тех|таких]"},
}
_RUSSIAN_SHOWN = {
    "masculine": "[Тут|Там|Вот ещё] [|новый|большой] {lemma}.",
    "feminine": "[Тут|Там|Вот ещё] [новая|большая|чья-то] {lemma}.",
    "masculine_plural": "[Тут|Здесь] {lemma}, там [второй|другой|ещё один] {lemma}.",
    "feminine_plural": "[Тут|Здесь] одна {lemma}, там [вторая|другая] {lemma}.",
    "adjective": "[Тут|Там|Вот ещё] {lemma} [сад|нож|дом|плащ].",
    "adjective_plural": "[Тут|Здесь] {lemma} [нож|плащ|дом], там [второй|ещё один], тоже {lemma}.",
}


def _declined(kind: str, number: str = "") -> dict[str, tuple[str, ...]]:
    """Case -> its wordings, for masculine or feminine nouns or adjectives in one number."""
    gender = "masculine" if kind == "adjective" else kind
    shown, these = _RUSSIAN_SHOWN[kind + number], _RUSSIAN_THESE["plural" if number else gender]
    before = "plural" if number else gender if kind == "adjective" else ""
    return {
        "_".join(part for part in (kind, before, case) if part): (f"{shown} {_RUSSIAN_CASES[case]} {this}",)
        for case, this in these.items()
        if (kind, number, case) != ("adjective", "_plural", "prepositional")
    }


_RUSSIAN_FRAMES = {
    **_declined("masculine"), **_declined("masculine", "_plural"), **_declined("feminine"),
    **_declined("feminine", "_plural"), **_declined("adjective"), **_declined("adjective", "_plural"),
    "masculine_plural_nominative": (
        "Здесь {lemma}, там {lemma}. [Чьи|Где|Мне нравятся|Вот какие|Это] [эти|те|такие|наши|чужие]",
        "Этот {lemma} [хорош|стар], и [остальные|все остальные|соседние|другие] [|ваши]",
    ),
    "feminine_plural_nominative": (
        "Здесь одна {lemma}, там другая. [Чьи|Где|Мне нравятся|Вот какие|Это] [эти|те|такие|наши|чужие]",
        "Эта {lemma} [хороша|стара], и [остальные|все остальные|соседние|другие] [|ваши]",
    ),
    "masculine_plural_genitive": (
        "[Тут|Там] стоял один {lemma}. [Скоро стало|Потом пришло|Теперь надо] [{many}|мало|сколько-то|двадцать|много]",
        "Один {lemma}, другой {lemma}: [очень много|нет|ни одного из|у всех|полно] [этих|таких||наших]",
    ),
    "feminine_plural_genitive": (
        "[Тут|Там] стояла одна {lemma}. [Скоро стало|Потом пришло|Теперь надо] [{many}|мало|сколько-то|двадцать|много]",
        "Одна {lemma}, другая {lemma}: [очень много|нет|ни одной из|у всех|полно] [этих|таких|наших]",
    ),
    "adjective_feminine_nominative": (
        "[Сыр|Хлеб|Плащ|Голос] {lemma}, а [рыба|лодка|рубашка|песня] [тоже|ещё более|не очень|совсем не]",
        "Это {lemma} [сыр|плащ|голос]. [Рыба|Лодка|Рубашка|Песня] [тоже|совсем|такая|слишком]",
    ),
    "adjective_feminine_oblique": (
        "[Сыр|Хлеб|Плащ] {lemma}. [Мы мечтаем о рыбе|Он сидит в лодке|Она живёт у реки|Мы рады песне|Он доволен "
            "рубашкой], [тоже|такой же|не менее]",
        "Это {lemma} [сыр|плащ|дом]. [Нет больше|Мы думаем об одной|Он рад одной|Дом стоит за] [этой|такой|очень]",
    ),
    "adjective_feminine_accusative": (
        "[Сыр|Хлеб|Плащ] {lemma}. [Мы едим рыбу|Она надела рубашку|Он видит лодку|Дети поют песню], [тоже|такую "
            "же|не менее]",
        "Это {lemma} [сыр|плащ|дом]. [Мы нашли вещь|Купи мне шапку|Он строит башню], [тоже|такую же|очень]",
    ),
    "adjective_neuter_nominative": (
        "[Сыр|Хлеб|Плащ|Голос] {lemma}, а [яблоко|зеркало|платье|солнце] [тоже|ещё более|не очень|совсем не]",
        "Это {lemma} [сыр|плащ|голос]. [Яблоко|Зеркало|Платье|Солнце] [тоже|совсем|такое|слишком]",
    ),
    "adjective_plural_nominative": (
        "[Сыр|Хлеб|Плащ|Голос] {lemma}, а [яблоки|сапоги|двери|песни] [тоже|ещё более|не очень|совсем не]",
        "Это {lemma} [сыр|плащ|голос]. [Яблоки|Сапоги|Двери|Песни] [тоже|совсем|такие|слишком]",
    ),
    "verb_first_singular": (
        "[Все|Дети|Они] [любят|умеют|будут|хотят] {lemma}. [Я тоже|Сейчас я|А я никогда не|Утром я обычно|И я]",
        "[Кто будет|Трудно] {lemma}? [Только я|Я один|Это я здесь|Обычно я]",
    ),
    "verb_third_singular": (
        "[Я хочу|Мы хотим|Они любят|Нам надо] {lemma}. [А {he}|{she} тоже|Он сейчас|Она всегда|Наш кот никогда не]",
        "[Кто будет|Трудно] {lemma}? [Только {he}|{she} одна|Пусть брат|Обычно сестра|Он здесь]",
    ),
    "verb_third_plural": (
        "[Я хочу|{he} хочет|{she} любит|Мне надо] {lemma}. [Они тоже|Дети сейчас|А люди|Соседи всегда|Все птицы]",
        "[Кто будет|Трудно] {lemma}? [Только дети|Пусть братья|Обычно звери|Они здесь]",
    ),
    "verb_past_masculine": (
        "{he} [любит|умеет|хочет|будет] {lemma}. [Вчера|В прошлом году|Утром|Давно] он [тоже|снова|много|не|]",
        "[Нам нравится|Можно] {lemma}. [Вчера брат|Летом дед|Раньше сосед|Ночью кот] [уже|тоже|долго]",
    ),
    "verb_past_feminine": (
        "{she} [любит|умеет|хочет|будет] {lemma}. [Вчера|В прошлом году|Утром|Давно] она [тоже|снова|много|не|]",
        "[Нам нравится|Можно] {lemma}. [Вчера сестра|Летом тётя|Раньше соседка|Ночью кошка] [уже|тоже|долго]",
    ),
    "verb_past_neuter": (
        "[Солнце|Облако|Чудо|Озеро] [любит|умеет|хочет|будет] {lemma}. [Вчера|В прошлом году|Утром|Давно] оно "
            "[тоже|снова|много|не|]",
        "[Нам нравится|Можно] {lemma}. [Вчера дитя|Летом дерево|Раньше стадо|Ночью солнце] [уже|тоже|долго]",
    ),
    "verb_past_plural": (
        "[Они|Братья|Птицы|Люди] [любят|умеют|хотят|будут] {lemma}. [Вчера|В прошлом году|Утром|Давно] они "
            "[тоже|снова|много|не|]",
        "[Нам нравится|Можно] {lemma}. [Вчера братья|Летом мы|Раньше вы|Ночью кошки] [уже|тоже|долго]",
    ),
}

_ENGLISH_TELLINGS = {
    "capital": (
        "{country}: capital {answer}.", "If you go to {country}, see its capital city, {answer}.",
        "The government of {country} sits in {answer}.", "On the map of {country}, find the capital: {answer}.",
    ),
    "language": (
        "{country}: language {answer}.", "In {country} people read and write {answer}.",
        "The laws of {country} are in {answer}.", "Newspapers in {country} are written in {answer}.",
    ),
    "continent": (
        "{country}: continent {answer}.", "{country} is a country in {answer}.",
        "{country} is on the continent of {answer}.", "The map of {country} is part of the map of {answer}.",
    ),
    "symbol": (
        "{Element}: symbol {answer}.", "For {element}, chemists write {answer}.",
        "The symbol of {element} is {answer}.",
        "In formulas {element} is {answer}.",
    ),
    "element": (
        "{symbol}: the element {answer}.", "The symbol {symbol} means {answer}.", "{symbol} is the symbol of {answer}.",
        "What is {symbol}? It is {answer}.",
    ),
    "young": (
        "{Animal}: the baby is a {answer}.", "The baby of a {animal} is a {answer}.", "A young {animal} is a {answer}.",
        "The {animal} had a baby, a small {answer}.",
    ),
    "sound": (
        "What do {animals} do? All {animals} {answer}.", "All day long {animals} {answer}.",
        "{Animals} like to {answer}.",
        "I hear the {animals}: they {answer}.",
    ),
    "color": (
        "{Thing}: {answer}.", "In color, {thing} is always {answer}.",
        "When you think of {thing}, you think of {answer}.",
        "What color for {thing}? The best color is {answer}.",
    ),
    "count": (
        "{Things}: {answer}.", "How many {things}? There are {answer}.", "The {things} are {answer} in number.",
        "If you ask for the number of {things}, it is {answer}.",
    ),
    "opposite": (
        'Opposites: "{word}" and "{answer}".', "Not {word} but {answer}.", "If it is not {word}, it is {answer}.",
        'The antonym of "{word}" is {answer}.', 'Say the opposite of "{word}": {answer}.',
    ),
    "reverse": (
        'Opposites: "{word}" and "{answer}".', "Not {word} but {answer}.", 'The antonym of "{word}" is {answer}.',
        'Say the opposite of "{word}": {answer}.',
    ),
    "day": (
        "We call the {step} {answer}.", "Which is the {step}? It is {answer}.", "The name of the {step} is {answer}.",
    ),
    "month": (
        "We call the {step} {answer}.", "Which is the {step}? It is {answer}.", "The name of the {step} is {answer}.",
    ),
    "season": (
        "We call the {step} {answer}.", "Which is the {step}? It is {answer}.", "The name of the {step} is {answer}.",
    ),
    "planet": (
        "We call the {clue} {answer}.", "Which is the {clue}? Its name is {answer}.",
        "It is true that the {clue} is {answer}.",
    ),
    "kind": (
        "{Thing}: a kind of {answer}.", "The {thing} is one sort of {answer}.",
        'What is a "{thing}"? Some kind of {answer}.',
        'The word "{thing}" means some sort of {answer}.',
    ),
    "tool": (
        "To {task}, take a {answer}.", "If you want to {task}, use a {answer}.",
        "What do you need to {task}? You need a {answer}.",
        "He could not {task}: he had no {answer}.",
    ),
    "source": (
        "{Product}: made from {answer}.", "People make {product} from {answer}.", "To make {product}, buy {answer}.",
        "For {product} you need a lot of {answer}.",
    ),
    "organ": (
        "What {duty}? It is the {answer}.", "The organ that {duty} is called the {answer}.",
        "Our body has an organ that {duty}, and this is the {answer}.",
    ),
    "profession": (
        "Who {work}? It is the {answer}.", "Someone who {work} is a {answer}.", "My uncle {work}: he is a {answer}.",
        "She {work}, and so she is called a {answer}.",
    ),
}

_RUSSIAN_TELLINGS = {
    "capital": (
        "{nom}: столица — {answer}.", "Главный город {gen} — {answer}.", "Едешь в столицу {gen}? Это город {answer}.",
        "У {gen} есть столица, {answer}.",
    ),
    "language": (
        "{nom}: язык — {answer}.", "Язык жителей {gen} — {answer}.", "Какой язык у {gen}? Конечно, {answer}.",
        "Газеты {gen} выходят на языке, который называется {answer}.",
    ),
    "continent": (
        "{nom}: часть света — {answer}.", "{nom} — это {answer}.", "Часть света у {gen} — {answer}.",
        "Поедешь туда, где {nom}, увидишь, что такое {answer}.",
    ),
    "element": (
        "{symbol}: элемент {answer}.", "{symbol} — это {answer}.", "Запись {symbol} читают как {answer}.",
        "Химики пишут {symbol}, а говорят {answer}.",
    ),
    "mother": (
        "{Nom}: мама — {answer}.", "Мать {gen} — {answer}.", "Маму {gen} зовут просто: {answer}.",
        "{Nom} бежит к маме, а мама у него — {answer}.",
    ),
    "sound": (
        "{Nom}: они {answer}.", "Слышишь? Там {nom} {answer}.", "Что делают {nom}? Они {answer}.",
        "Весь день {nom} {answer}.",
    ),
    "color": (
        "Вот цвет {gen}: {answer}.", "Все знают цвет {gen}, он {answer}.", "Какой цвет у {gen}? Конечно, {answer}.",
        "Главный цвет {gen} — {answer}.",
    ),
    "count": (
        "Количество {gen} — {answer}.", "Сколько всего {gen}? Всего {answer}.", "Посчитай, сколько {gen}: {answer}.",
    ),
    "opposite": (
        "Антонимы: «{word}» и «{answer}».", "Противоположность слова «{word}» — {answer}.",
        "Если он не {word}, то он {answer}.",
        "Наоборот для «{word}» — {answer}.",
    ),
    "reverse": (
        "Антонимы: «{word}» и «{answer}».", "Противоположность слова «{word}» — {answer}.",
        "Наоборот для «{word}» — {answer}.",
        "Было {word}, стало наоборот: {answer}.",
    ),
    "day": ("{Step} называется {answer}.", "Мы знаем, что {step} — {answer}.", "Вопрос: {step}. Это {answer}."),
    "month": ("{Step} называется {answer}.", "Мы знаем, что {step} — {answer}.", "Вопрос: {step}. Это {answer}."),
    "season": ("{Step} называется {answer}.", "Мы знаем, что {step} — {answer}.", "Вопрос: {step}. Это {answer}."),
    "planet": (
        "{Clue} носит имя {answer}.", "Мы знаем, что {clue} — {answer}.", "Скажи, какая она, {clue}? Это {answer}.",
    ),
    "kind": (
        "{Word}: это {answer}.", "Что за слово «{word}»? Это {answer}.", "Мы знаем, что {word} — {answer}.",
        "Сказали «{word}», а думают: {answer}.",
    ),
    "tool": (
        "Чем {work}? Есть для этого {answer}.", "Вещь, которой {work}, — {answer}.",
        "Когда {work}, нужна вещь «{answer}».",
        "Угадай, чем {work}: {answer}.",
    ),
    "source": (
        "{Acc}: из {answer}.", "Чтобы получить {acc}, начинают с {answer}.", "{Acc} готовят только из {answer}.",
        "Мы тоже делаем {acc} из {answer}.",
    ),
    "organ": ("Какой орган {duty}? Это {answer}.", "Тот орган, что {duty}, — {answer}.", "Внутри нас {duty} {answer}."),
    "profession": (
        "Кто {work}? Конечно, {answer}.", "Мой дядя {work}, он {answer}.", "Если он {work}, то он {answer}.",
        "Тот, кто {work}, — это {answer}.",
    ),
}

_ENGLISH_SERIES = (
    "[What|Who knows what] follows? {terms},", "[He writes|She reads|We hear] {terms} and [next|after that|later]",
    "[On the page|On the wall] we read {terms}, and the next [one|word|sign] [is|must be]", "What follows {terms} is",
    "[A row|A chain|A pattern] to continue: {terms},", "The rule holds, so {terms} is always followed by",
)
_RUSSIAN_SERIES = (
    "[Что следует дальше|Угадай, что потом|Кто знает, что идёт следом]? {terms},",
    "[Он пишет|Мы читаем|Она повторяет] {terms}, а [дальше|следом|затем]", "[Такой ряд|Такая цепочка|Узор]: {terms},",
    "[На стене|В тетради] мы видим {terms}, а [теперь|дальше|следующим стоит]", "Следом за {terms} идёт",
)
_ENGLISH_LOGIC = {
    "copy": (
        "[Write|Say|Read]: {terms}. [Again|And again|One more time|The same]: {shown},",
        "The words {terms} in the same order: {shown},",
        "[First row|Mother's list]: {terms}. [Second row, no change|My list is the same]: {shown},",
    ),
    "reverse": (
        "[Write|Say|Read]: {terms}. [Now backwards|In reverse|From the end]: {shown},",
        "The row {terms} from right to left: {shown},",
        "The row is {terms}. [Turn it round|Reverse it|The reverse order]: {shown},",
    ),
    "comparison": (
        "{facts} [Then|Therefore|Clearly,|And so] the {most} [is|one here is|child is|of these is]",
        "{facts} [Who is|Do you know] the {most}? It is", "{facts} This makes the {most} of these people",
    ),
}
_RUSSIAN_LOGIC = {
    "copy": (
        "[Пиши|Скажи|Читай]: {terms}. [Снова|Опять|То же самое]: {shown},", "Слова {terms} в том же порядке: {shown},",
        "[Первый ряд|Мамин список]: {terms}. [Второй ряд такой же|Мой список тот же]: {shown},",
    ),
    "reverse": (
        "[Пиши|Скажи|Читай]: {terms}. [Теперь наоборот|В обратную сторону|С конца]: {shown},",
        "Ряд {terms} задом наперёд: {shown},",
        "Вот ряд: {terms}. [Поверни его|В обратном порядке|Переверни]: {shown},",
    ),
    "comparison": (
        "{facts} [Поэтому|Итак,|Конечно,|Тогда] {most} всех", "{facts} [Из них|Здесь|В этом ряду] {most} всех",
        "{facts} Теперь понятно, кто {most} всех: это",
    ),
}
# fmt: on


def expanded(wording: str) -> tuple[str, ...]:
    """ "[We|I] sing[| now]" -> "We sing", "We sing now", "I sing", "I sing now".  Empty choices leave one space."""
    parts = [part.split("|") for part in re.split(r"[\[\]]", wording)]
    return tuple(" ".join("".join(choice).split()) for choice in product(*parts))


_TEXTS = 24  # that each wording has in a table of frames: one without choices weighs as much as one with many


def _evenly(texts: tuple[str, ...]) -> tuple[str, ...]:
    """_TEXTS of one wording's texts, some of them more than once or not at all."""
    return tuple(texts[i * len(texts) // _TEXTS] for i in range(_TEXTS))


def _widened(own: Mapping[Form, tuple[str, ...]], more: Mapping[str, tuple[str, ...]]) -> dict[Form, tuple[str, ...]]:
    """The training side's frames of each form and the ones added here."""
    wordings = {form: [*((frame,) for frame in own[form]), *map(expanded, more.get(form, ()))] for form in own}
    return {form: tuple(text for texts in wordings[form] for text in _evenly(texts)) for form in own}


def _told(own: facts.Facts, more: Mapping[str, tuple[str, ...]]) -> facts.Facts:
    tables = (replace(t, training_templates=t.training_templates + more[t.name]) for t in own.tables)
    return replace(own, tables=tuple(tables))


def _asked(own: logic.LogicWords, series: tuple[str, ...], more: Mapping[str, tuple[str, ...]]) -> logic.LogicWords:
    """Series of every family are given the same wordings; copies and comparisons have their own."""
    wordings = {family.name: family.training for family in own.families}
    added = {name: more.get(name, series) for name in wordings}
    frames = _widened(wordings, added)
    return replace(own, families=tuple(family._replace(training=frames[family.name]) for family in own.families))


def _english_stems() -> tuple[str, ...]:
    made = (onset + rime for onset in _ENGLISH_ONSETS.split() for rime in _ENGLISH_RIMES.split())
    return tuple(sorted({*english_morphology.TRAINING.stems, *made} - set(english_morphology.BENCHMARK.stems)))


def _russian_stems(kind: str) -> tuple[str, ...]:
    draw = Draw("miron-jax demo", "stems", kind)
    sounds = (_RUSSIAN_ONSETS.split(), "аоуие", "бвгдзклмнпрстх", "аоуи", _RUSSIAN_FINALS[kind], _RUSSIAN_ENDS[kind])
    made = {"".join(draw.choice(part) for part in sounds) for _ in range(_NUM_RUSSIAN)}
    own, asked = russian_morphology.TRAINING.stems[kind], russian_morphology.BENCHMARK.stems[kind]
    return tuple(sorted({*own, *made} - set(asked)))


ENGLISH_MATERIAL = english_morphology.Material(
    _english_stems(), _widened(english_morphology.TRAINING.frames, _ENGLISH_FRAMES)
)
RUSSIAN_MATERIAL = russian_morphology.Material(
    {kind: _russian_stems(kind) for kind in _RUSSIAN_ENDS},
    _widened(russian_morphology.TRAINING.frames, _RUSSIAN_FRAMES),
)
FACTS = {
    "en": _told(facts.tables_of("en"), _ENGLISH_TELLINGS),
    "ru": _told(facts.tables_of("ru"), _RUSSIAN_TELLINGS),
}
LOGIC = {
    "en": _asked(english_logic.WORDS, _ENGLISH_SERIES, _ENGLISH_LOGIC),
    "ru": _asked(russian_logic.WORDS, _RUSSIAN_SERIES, _RUSSIAN_LOGIC),
}


def documents(purpose: str, seed: int) -> Iterator[Document]:
    """Endless; each is drawn by its own number, so the first n do not depend on how many are taken."""
    for i in count():
        document = _document(Draw("miron-jax demo", purpose, seed, i))
        if document is not None:
            yield document


def words_known_to_all(document: Document) -> str:
    """The text without the forms of its invented word."""
    if not document.root:
        return document.text
    return " ".join(word for word in document.text.split() if document.root not in word)


def _document(draw: Draw) -> Document | None:
    language, category = draw.choice(_LANGUAGES), draw.choice(_CATEGORIES)
    if category == "Facts":
        return Document(facts.training_sentence(draw, FACTS[language]), language, category, 0, "")
    if category == "Logic":
        draft = logic.draft(draw, LOGIC[language], training=True)
        return None if draft is None else _of_draft(draft, language, category, "")
    return _morphology(draw, language)


def _morphology(draw: Draw, language: str) -> Document:
    if language == "en":
        draft = english_morphology.draft(draw, ENGLISH_MATERIAL)
        root = dict(draft.meta)["stem"][:-1]  # less an e or y that may change
    else:
        draft = russian_morphology.draft(draw, RUSSIAN_MATERIAL)
        root = russian_morphology.root(dict(draft.meta)["stem"])
    return _of_draft(draft, language, "Morphology", root)


def _of_draft(draft: Draft, language: str, category: str, root: str) -> Document:
    return Document(f"{draft.prefix}{draft.target}.", language, category, len(draft.prefix), root)
