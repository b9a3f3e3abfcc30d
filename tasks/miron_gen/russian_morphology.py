"""Russian morphology: an invented word in a sentence that calls for one case, gender or person of it.

Arrives: a source of draws; lemmas and frames, the benchmark's or those a demo model trains on, which share nothing.
Leaves: one candidate item.  It deliberately does not know which prefixes were used before, nor how the lemmas were
chosen: benchmarks/freeze_stems.py made stems_ru.txt once (benchmark, blank line, training), and only that list counts.

The tables are right for that list alone: it holds no lemma with a soft or hushing end, a fleeting vowel, or the look of a
surname.  The accusative of masculine nouns, which asks whether the thing lives, never occurs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from miron_jax.tasks.draw import Draw
from miron_jax.tasks.miron_gen.draft import Draft


class Form(NamedTuple):
    """Endings after the root; `attach` tells what "ы" and "и" become."""

    right: str
    wrong: tuple[str, str, str]  # the lemma's, then those of other forms, of other declensions or of no Russian word


class Material(NamedTuple):
    """What items are made of."""

    stems: Mapping[str, tuple[str, ...]]  # family -> lemmas
    frames: Mapping[str, tuple[str, ...]]  # form -> wordings; a slot is "lemma" or a key of SLOTS


_LEMMA_ENDING = {"verb": "ать", "adjective": "ый", "feminine": "а", "masculine": ""}

# No wrong ending may be a second right answer.  So: no -у beside a masculine genitive or prepositional (чаю, в саду), no
# -а beside its nominative plural (дома), never the same case in the other number, and no -у beside -аю (ору, жду).
_ENDINGS: dict[str, dict[str, Form]] = {
    "masculine": {
        "genitive": Form("а", ("", "ы", "ом")),
        "dative": Form("у", ("", "е", "ом")),
        "instrumental": Form("ом", ("", "ой", "а")),
        "prepositional": Form("е", ("", "ой", "ом")),
        "plural_nominative": Form("ы", ("", "и", "ов")),
        "plural_genitive": Form("ов", ("", "ей", "ам")),
        "plural_dative": Form("ам", ("", "ом", "ов")),
        "plural_instrumental": Form("ами", ("", "ой", "ах")),
        "plural_prepositional": Form("ах", ("", "ов", "ами")),
    },
    "feminine": {
        "genitive": Form("ы", ("а", "и", "ой")),
        "dative": Form("е", ("а", "у", "ой")),
        "accusative": Form("у", ("а", "ом", "ой")),
        "instrumental": Form("ой", ("а", "ом", "у")),
        "prepositional": Form("е", ("а", "ом", "ой")),
        "plural_nominative": Form("ы", ("а", "и", "ам")),
        "plural_genitive": Form("", ("а", "ов", "ам")),
        "plural_dative": Form("ам", ("а", "ом", "ах")),
        "plural_instrumental": Form("ами", ("а", "ом", "ах")),
        "plural_prepositional": Form("ах", ("а", "ов", "ами")),
    },
    "adjective": {
        "masculine_genitive": Form("ого", ("ый", "его", "ым")),
        "masculine_dative": Form("ому", ("ый", "ему", "ого")),
        "masculine_instrumental": Form("ым", ("ый", "им", "ого")),
        "masculine_prepositional": Form("ом", ("ый", "ем", "ому")),
        "feminine_nominative": Form("ая", ("ый", "яя", "ую")),
        "feminine_oblique": Form("ой", ("ый", "ей", "ую")),
        "feminine_accusative": Form("ую", ("ый", "юю", "ой")),
        "neuter_nominative": Form("ое", ("ый", "ая", "ого")),
        "plural_nominative": Form("ые", ("ый", "ие", "ых")),
        "plural_genitive": Form("ых", ("ый", "их", "ыми")),
        "plural_dative": Form("ым", ("ый", "им", "ых")),
        "plural_instrumental": Form("ыми", ("ый", "ими", "ых")),
    },
    "verb": {
        "first_singular": Form("аю", ("ать", "ую", "ает")),
        "third_singular": Form("ает", ("ать", "ует", "аю")),
        "third_plural": Form("ают", ("ать", "уют", "ает")),
        "past_masculine": Form("ал", ("ать", "ил", "ала")),
        "past_feminine": Form("ала", ("ать", "ила", "ал")),
        "past_neuter": Form("ало", ("ать", "ило", "ала")),
        "past_plural": Form("али", ("ать", "или", "ало")),
    },
}

FORMS = tuple(f"{family}_{form}" for family, endings in _ENDINGS.items() for form in endings)


def family(lemma: str) -> str:
    """Told by the lemma's end, which suffices for the lemmas of the list."""
    return next(name for name, ending in _LEMMA_ENDING.items() if lemma.endswith(ending))


def root(lemma: str) -> str:
    return lemma.removesuffix(_LEMMA_ENDING[family(lemma)])


def attach(root: str, ending: str) -> str:
    """After г к х no ы is written but и, elsewhere ы; an ending "и" asks for the one that may not stand there."""
    velar = root[-1] in "гкх"
    return root + {"ы": "и" if velar else "ы", "и": "ы" if velar else "и"}.get(ending, ending)


def inflect(lemma: str, form: str) -> str:
    kind = family(lemma)
    return attach(root(lemma), _ENDINGS[kind][form.removeprefix(f"{kind}_")].right)


def misinflect(lemma: str, form: str) -> tuple[str, ...]:
    kind = family(lemma)
    return tuple(attach(root(lemma), ending) for ending in _ENDINGS[kind][form.removeprefix(f"{kind}_")].wrong)


SLOTS = {
    "he": ("Антон", "Борис", "Виктор", "Денис", "Игорь", "Кирилл", "Максим", "Олег", "Павел", "Роман"),
    "she": ("Анна", "Вера", "Дарья", "Жанна", "Инна", "Лидия", "Марина", "Нина", "Ольга", "Софья"),
    "few": ("два", "три", "четыре"),
    "few_f": ("две", "три", "четыре"),
    "many": ("пять", "шесть", "семь", "восемь", "девять", "десять"),
}

# A preposition, a numeral or a governing verb fixes the case, a pronoun or numeral the number and gender; the lemma is
# shown as a subject.  No frame leaves the lemma itself possible at the gap.
FRAMES: dict[str, tuple[str, ...]] = {
    "masculine_genitive": (
        "На столе лежит {lemma}. Там нет ничего, кроме этого",
        "Здесь стоит один {lemma}, а за стеной целых {few}",
        "Вот старый {lemma}. {she} живёт возле этого",
        "У ворот найден {lemma}. {he} не знает, чей он, и ищет хозяина этого",
    ),
    "masculine_dative": (
        "Перед нами новый {lemma}. {he} медленно подходит к этому",
        "Это очень полезный {lemma}. Мы всё успели благодаря этому",
        "На холме виден {lemma}. Эта тропа ведёт прямо к тому",
    ),
    "masculine_instrumental": (
        "У окна стоит {lemma}. Кресло стоит рядом с этим",
        "{she} получила в подарок {lemma} и очень довольна своим",
        "На полу лежит {lemma}. Лампа висит прямо над этим",
    ),
    "masculine_prepositional": (
        "Дома у соседки есть {lemma}. Она всем рассказывает о своём",
        "Перед вами большой {lemma}. Письмо спрятано внутри, в этом",
        "На горе стоит {lemma}. В деревне поют песни о том самом",
    ),
    "masculine_plural_nominative": (
        "У двери стоит один {lemma}, а у окна стоят другие",
        "Мне достался плохой {lemma}, но бывают и хорошие",
        "{he} принёс {lemma}. Оказалось, что на складе лежат ещё и другие",
    ),
    "masculine_plural_genitive": (
        "Вот один {lemma}, а вон там {many}",
        "Сначала был всего один {lemma}. Теперь здесь очень много",
        "{she} сделала за день {lemma}, а {he} сделал целых {many}",
    ),
    "masculine_plural_dative": (
        "Здесь {lemma}, и там {lemma}. {he} подошёл к этим двум",
        "Висит {lemma}, рядом другой, третий, четвёртый. Дождь стучит по всем этим",
        "Первый {lemma} тяжёлый, второй лёгкий. {she} рада обоим",
    ),
    "masculine_plural_instrumental": (
        "Слева {lemma}, и справа {lemma}. {she} стоит между этими двумя",
        "Один {lemma} ему не нужен: {he} торгует сразу многими",
        "{he} взял {lemma}, потом взял ещё один. Теперь он идёт домой с двумя",
    ),
    "masculine_plural_prepositional": (
        "Вот редкий {lemma}. {he} написал целую книгу о разных",
        "На складе лежит не один {lemma}. Пыль лежит на всех этих",
        "Первый {lemma} заперт, и второй заперт. Ключи спрятаны в этих двух",
    ),
    "feminine_genitive": (
        "Здесь одна {lemma}, а за углом целых {few_f}",
        "У неё была новая {lemma}. Теперь {she} осталась без своей",
        "Это большая {lemma}. {he} стоит возле этой",
    ),
    "feminine_dative": (
        "Перед нами старая {lemma}. {he} подошёл ближе к этой",
        "Какая полезная {lemma}! Мы всё успели благодаря этой",
        "Вдали видна высокая {lemma}. Дорога ведёт прямо к той",
    ),
    "feminine_accusative": (
        "В лавке есть ещё одна {lemma}. {he} хочет купить именно эту",
        "Где-то здесь спрятана старая {lemma}. {she} давно ищет эту",
        "На полке стоит новая {lemma}. Посмотри скорее на эту",
    ),
    "feminine_instrumental": (
        "В углу стоит синяя {lemma}. Стул стоит рядом с этой",
        "У него в саду есть своя {lemma}. {he} гордится своей",
        "На столе лежит тонкая {lemma}. Лампа висит прямо над этой",
    ),
    "feminine_prepositional": (
        "Дома у неё есть любимая {lemma}. {she} всем рассказывает о своей",
        "Перед вами большая {lemma}. Письмо спрятано внутри, в этой",
        "На горе стоит древняя {lemma}. В деревне поют песни о той самой",
    ),
    "feminine_plural_nominative": (
        "У двери стоит одна {lemma}, а у окна стоят другие",
        "Мне досталась плохая {lemma}, но бывают и хорошие",
        "На стене висит одна {lemma}. У соседа висят точно такие же",
    ),
    "feminine_plural_genitive": (
        "Вот одна {lemma}, а вон там {many}",
        "Сначала здесь была одна {lemma}. Теперь здесь очень много",
        "У неё есть только одна {lemma}, а у соседа целых {many}",
    ),
    "feminine_plural_dative": (
        "Первая {lemma} тяжёлая, вторая лёгкая. {she} рада обеим",
        "Здесь одна {lemma}, и там одна {lemma}. {he} подошёл к этим двум",
        "Висит одна {lemma}, рядом другая, третья, четвёртая. Дождь стучит по всем этим",
    ),
    "feminine_plural_instrumental": (
        "Слева одна {lemma}, справа другая {lemma}. {he} стоит между этими двумя",
        "Одна {lemma} ей не нужна: {she} торгует сразу многими",
        "В сумке была одна {lemma}, потом туда легла вторая. Теперь {he} идёт домой с двумя",
    ),
    "feminine_plural_prepositional": (
        "Вот редкая {lemma}. {she} написала целую книгу о разных",
        "На складе лежит не одна {lemma}. Пыль лежит на всех этих",
        "Первая {lemma} заперта, и вторая заперта. Ключи спрятаны в этих двух",
    ),
    "adjective_masculine_genitive": (
        "Рядом стоит {lemma} дом. Мы только что вышли из этого",
        "В комнате есть один {lemma} стул, и нет второго такого же",
        "Чай сегодня слишком {lemma}. {she} не пьёт ничего",
    ),
    "adjective_masculine_dative": (
        "Вот {lemma} мост. {he} быстро идёт к этому",
        "Вкус у супа {lemma}. {she} не привыкла ни к чему",
        "За рекой стоит {lemma} лес. Дорога ведёт прямо к тому",
    ),
    "adjective_masculine_instrumental": (
        "К вечеру снег обычно {lemma}. Вот и сегодня он стал совсем",
        "Этот {lemma} нож очень острый. {he} режет хлеб этим",
        "Пирог опять вышел {lemma}. {she} хочет, чтобы он стал не таким",
    ),
    "adjective_masculine_prepositional": (
        "Это {lemma} город. {he} родился в этом",
        "В книге есть {lemma} рассказ. {she} весь день думает о том",
        "Стол у нас {lemma}. Все чашки стоят на этом",
    ),
    "adjective_feminine_nominative": (
        "Забор тут {lemma}, и стена тоже",
        "Если двор у них {lemma}, то и улица, конечно,",
        "Брат у неё {lemma}, а сестра ещё более",
    ),
    "adjective_feminine_oblique": (
        "Дом у нас {lemma}, и стоит он на одной очень",
        "Порошок был {lemma}. {he} добавил его в воду, и она сразу стала такой же",
        "Пол здесь {lemma}. {she} мечтает о комнате посветлее, не о такой",
    ),
    "adjective_feminine_accusative": (
        "У него {lemma} плащ. {she} тоже купила себе вещь, такую же",
        "Этот путь слишком {lemma}. Лучше выбрать другую дорогу, не такую",
        "Шкаф у них {lemma}. Рядом они поставят полку, тоже очень",
    ),
    "adjective_neuter_nominative": (
        "Дом у них {lemma}, и окно тоже",
        "День сегодня {lemma}. Даже небо какое-то",
        "Лес тут {lemma}, а озеро ещё более",
    ),
    "adjective_plural_nominative": (
        "Один шар {lemma}, и остальные шары тоже",
        "Мой шарф {lemma}, а твои перчатки совсем не такие",
        "Этот дуб {lemma}. Здесь вообще все дубы очень",
    ),
    "adjective_plural_genitive": (
        "На этом берегу один {lemma} дом, а на том берегу целых {many}",
        "В саду растёт {lemma} куст. Раньше здесь было много таких же",
        "Этот роман {lemma}. {he} не читает никаких книг, кроме таких",
    ),
    "adjective_plural_dative": (
        "Впереди {lemma} холм, за ним ещё два таких же. Мы идём к этим",
        "Этот гость слишком {lemma}. {she} рада гостям, но не таким",
        "Праздник вышел {lemma}. Дети рады любым праздникам, но больше всего именно таким",
    ),
    "adjective_plural_instrumental": (
        "Один лист уже {lemma}. Скоро и другие листья станут",
        "У меня {lemma} карандаш. {he} рисует только такими",
        "Этот камень {lemma}. {she} украсила дорожку камнями, тоже очень",
    ),
    "verb_first_singular": (
        "{he} любит {lemma}. Я тоже каждый день",
        "Мне нравится {lemma}. Не мешай, я и сейчас",
        "Ты спрашиваешь, не устал ли я {lemma}? Нет, я всё ещё",
    ),
    "verb_third_singular": (
        "Я редко хочу {lemma}. А вот {she} делает это часто: она целыми днями",
        "Всем пора {lemma}! Почему же {he} до сих пор не",
        "Кошка умеет {lemma}. Слышишь, как она сейчас",
    ),
    "verb_third_plural": (
        "{he} умеет {lemma}. Его братья сейчас тоже",
        "Здесь принято {lemma}. Каждый вечер все жители",
        "Я не хочу {lemma}, а вот они прямо сейчас",
    ),
    "verb_past_masculine": (
        "Сегодня {he} не будет {lemma}. Вчера он весь день",
        "Дед всё ещё умеет {lemma}. В молодости он часто",
        "Мальчик обещал больше не {lemma}. Но вчера он снова",
    ),
    "verb_past_feminine": (
        "{she} обещала {lemma}. И вчера она целый час",
        "Бабушка любит {lemma}. Раньше она каждый вечер",
        "Девочка перестала {lemma}. А ведь ещё утром она",
    ),
    "verb_past_neuter": (
        "Радио умеет {lemma}. Вчера оно всю ночь",
        "Море может {lemma}. Прошлой зимой оно часто",
        "Странное существо любит {lemma}. Прошлой ночью оно громко",
    ),
    "verb_past_plural": (
        "Они любят {lemma}. Вчера они до самой ночи",
        "Дети больше не хотят {lemma}. На прошлой неделе они слишком много",
        "Мы уже не можем {lemma}. Раньше мы каждый день",
    ),
}

TRAINING_FRAMES: dict[str, tuple[str, ...]] = {
    "masculine_genitive": (
        "Это {lemma}. Сегодня мы не видели этого",
        "Мне хватит того, что есть один {lemma}. А ему нужно {few}",
        "В доме был {lemma}. Теперь там пусто, нет больше того",
    ),
    "masculine_dative": (
        "Вот {lemma}. Птица летит к этому",
        "Рядом растёт {lemma}. Корова подошла к самому",
        "Где же {lemma}? Надо идти к нему, к этому",
    ),
    "masculine_instrumental": (
        "Впереди стоит {lemma}. Сразу за этим",
        "Это мой {lemma}. Я пользуюсь этим",
        "Стоит {lemma}. Прямо под этим",
    ),
    "masculine_prepositional": (
        "Вот {lemma}. Мы говорим об этом",
        "Это {lemma}. На этом",
        "Дорогой {lemma} продан. {he} до сих пор жалеет о том",
    ),
    "masculine_plural_nominative": (
        "Справа {lemma}, слева {lemma}. Это наши новые",
        "В саду есть {lemma}, в лесу тоже есть разные",
        "Старый {lemma} пропал, но остались новые",
    ),
    "masculine_plural_genitive": (
        "У меня один {lemma}, а у тебя {many}",
        "В лесу есть {lemma}, и не один: там сотни",
        "Пропал {lemma}. Пропало и несколько других",
    ),
    "masculine_plural_dative": (
        "Вот {lemma}, и вот {lemma}. Кот бежит к обоим",
        "Тут есть {lemma}, и не один. Вода течёт к этим",
        "Всюду {lemma} да {lemma}. Я рад всем этим многочисленным",
    ),
    "masculine_plural_instrumental": (
        "Мне нужен {lemma}, и не один. Я пользуюсь многими",
        "Вот {lemma}, и вот {lemma}. Дом стоит за этими двумя",
        "В ящике лежит {lemma}. Пришёл ещё ящик, уже с тремя",
    ),
    "masculine_plural_prepositional": (
        "Есть на свете {lemma}. Сегодня урок о таких",
        "Тут {lemma}, и там {lemma}. Снег лежит на обоих",
        "Один {lemma} пуст. Зерно лежит в трёх других",
    ),
    "feminine_genitive": (
        "Это новая {lemma}. Сегодня мы не видели этой",
        "Мне хватит того, что есть одна {lemma}. А ему нужно {few_f}",
        "В доме была старая {lemma}. Теперь нет больше той",
    ),
    "feminine_dative": (
        "Вот одна {lemma}. Птица летит к этой",
        "Рядом растёт новая {lemma}. Корова подошла к самой",
        "Где же моя {lemma}? Надо идти к ней, к этой",
    ),
    "feminine_accusative": (
        "Это новая {lemma}. Я вижу эту",
        "Моя {lemma} пропала. Верните мне мою",
        "Какая красивая {lemma}! {she} рисует эту",
    ),
    "feminine_instrumental": (
        "Впереди стоит старая {lemma}. Сразу за этой",
        "Это моя {lemma}. Я пользуюсь этой",
        "Стоит зелёная {lemma}. Прямо под этой",
    ),
    "feminine_prepositional": (
        "Вот твоя {lemma}. Мы говорим об этой",
        "Это новая {lemma}. На этой",
        "Дорогая {lemma} продана. {he} до сих пор жалеет о той",
    ),
    "feminine_plural_nominative": (
        "Справа одна {lemma}, слева другая. Это наши новые",
        "В саду есть одна {lemma}, в лесу тоже есть разные",
        "Старая {lemma} пропала, но остались новые",
    ),
    "feminine_plural_genitive": (
        "У меня одна {lemma}, а у тебя {many}",
        "В лесу растёт {lemma}, и не одна: там сотни",
        "Пропала моя {lemma}. Пропало и несколько других",
    ),
    "feminine_plural_dative": (
        "Вот одна {lemma}, и вот одна {lemma}. Кот бежит к обеим",
        "Тут есть {lemma}, и не одна. Вода течёт к этим",
        "Всюду то одна {lemma}, то другая. Я рад всем этим многочисленным",
    ),
    "feminine_plural_instrumental": (
        "Мне нужна {lemma}, и не одна. Я пользуюсь многими",
        "Вот одна {lemma}, и вот вторая {lemma}. Дом стоит за этими двумя",
        "В ящике лежит одна {lemma}. Пришёл ещё ящик, уже с тремя",
    ),
    "feminine_plural_prepositional": (
        "Есть на свете такая {lemma}. Сегодня урок о таких",
        "Тут одна {lemma}, и там одна {lemma}. Снег лежит на обеих",
        "Одна {lemma} пуста. Зерно лежит в трёх других",
    ),
    "adjective_masculine_genitive": (
        "Это {lemma} сыр. Я не хочу этого",
        "Сад тут {lemma}. Нигде больше нет такого",
        "Вчера был {lemma} день. {he} не помнит другого такого",
    ),
    "adjective_masculine_dative": (
        "Вот {lemma} дуб. Птица летит к этому",
        "Воздух у моря {lemma}. Мы радуемся такому",
        "Сосед у нас {lemma}. {she} пишет письмо этому",
    ),
    "adjective_masculine_instrumental": (
        "Вот {lemma} ключ. Я открыл дверь этим",
        "Весной ветер часто бывает {lemma}. Завтра он снова будет",
        "Под горой {lemma} сад. Солнце стоит над этим",
    ),
    "adjective_masculine_prepositional": (
        "Вот {lemma} двор. Дети играют в этом",
        "Наш корабль {lemma}. Мы плывём на этом",
        "Это {lemma} вопрос. Мы долго говорили об этом",
    ),
    "adjective_feminine_nominative": (
        "Сад {lemma}, и роща в нём такая же",
        "Нож у повара {lemma}. Ложка у него тоже",
        "Какой {lemma} лес! И трава вокруг вся",
    ),
    "adjective_feminine_oblique": (
        "Стул у окна {lemma}. Мы сидим на скамейке, тоже",
        "Берег у реки {lemma}. Поэтому и реку люди зовут",
        "Вот {lemma} сад. Он растёт возле горы, тоже",
    ),
    "adjective_feminine_accusative": (
        "Сыр сегодня {lemma}. Рыбу мы тоже ели",
        "Бант у меня {lemma}. Я хочу получить и ленту, такую же",
        "Дуб у пруда {lemma}. Я вижу там и иву, тоже",
    ),
    "adjective_neuter_nominative": (
        "Сад {lemma}, и поле за ним такое же",
        "Суп у нас {lemma}. Молоко у нас тоже",
        "Какой {lemma} вечер! И море вдали всё",
    ),
    "adjective_plural_nominative": (
        "Сад {lemma}, и цветы в нём такие же",
        "Стол у него {lemma}. Стулья у него тоже",
        "Какой {lemma} лес! И горы вокруг все",
    ),
    "adjective_plural_genitive": (
        "Вот {lemma} гриб. В корзине {many} таких",
        "Сосед у нас {lemma}. Мало на свете людей таких",
        "Это {lemma} цветок. Я хочу букет цветов, самых",
    ),
    "adjective_plural_dative": (
        "Вот {lemma} корабль и вот второй такой же. Волны бегут к этим",
        "Зверь этот {lemma}. {he} не доверяет зверям, всем этим",
        "Ветер сегодня {lemma}. Мельница рада ветрам, даже самым",
    ),
    "adjective_plural_instrumental": (
        "Вот {lemma} гвоздь. Доска прибита тремя",
        "Этот мяч {lemma}. Дети хотят играть только",
        "Дом пока {lemma}. Зимой все дома бывают",
    ),
    "verb_first_singular": (
        "Ты не хочешь {lemma}, а я хочу. Смотри, как я",
        "Все любят {lemma}. Вот я сижу и",
        "Мне пора {lemma}. По субботам я",
    ),
    "verb_third_singular": (
        "Они будут {lemma} завтра, а {he} уже сейчас",
        "Собака хочет {lemma}. Видишь, она опять",
        "Надо {lemma} почаще. {she} каждое утро",
    ),
    "verb_third_plural": (
        "Птицы умеют {lemma}. Смотри, вот они",
        "Сосед будет {lemma} завтра, а другие соседи уже",
        "Нельзя {lemma} так громко. Почему эти люди",
    ),
    "verb_past_masculine": (
        "{he} хочет {lemma}. Утром он уже",
        "Наш конь устал {lemma}. Вчера он долго",
        "Отец велел {lemma}. Прошлым летом он сам",
    ),
    "verb_past_feminine": (
        "{she} хочет {lemma}. Утром она уже",
        "Наша корова устала {lemma}. Вчера она долго",
        "Мать велела {lemma}. Прошлым летом она сама",
    ),
    "verb_past_neuter": (
        "Чудище хочет {lemma}. Утром оно уже",
        "Животное устало {lemma}. Вчера оно долго",
        "Колесо начало {lemma}. Прошлым летом оно иногда",
    ),
    "verb_past_plural": (
        "Гости хотят {lemma}. Утром они уже",
        "Наши кони устали {lemma}. Вчера они долго",
        "Соседи велели {lemma}. Прошлым летом они сами",
    ),
}


def _by_family(lemmas: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(lemma for lemma in lemmas.split() if family(lemma) == name) for name in _ENDINGS}


def _stem_lists() -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[str, ...]]]:
    text = Path(__file__).with_name("stems_ru.txt").read_text(encoding="utf-8")
    benchmark, training = (_by_family(part) for part in text.split("\n\n"))
    return benchmark, training


BENCHMARK_STEMS, TRAINING_STEMS = _stem_lists()
BENCHMARK = Material(BENCHMARK_STEMS, FRAMES)
TRAINING = Material(TRAINING_STEMS, TRAINING_FRAMES)


def draft(draw: Draw, material: Material) -> Draft:
    """One candidate: the form is drawn first and uniformly, then a wording, then a lemma of the form's family."""
    form = draw.choice(FORMS)
    frame_idx = draw.below(len(material.frames[form]))
    lemma = draw.choice(material.stems[form.partition("_")[0]])
    words = {slot: draw.choice(options) for slot, options in SLOTS.items()}
    return Draft(
        prefix=material.frames[form][frame_idx].format(lemma=lemma, **words),
        target=" " + inflect(lemma, form),
        distractors=tuple(" " + word for word in misinflect(lemma, form)),
        template=f"{form}/{frame_idx}",
        meta=(("stem", lemma), ("form", form), ("family", family(lemma))),
    )
