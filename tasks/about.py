"""One line about each benchmark, and the year of its publication.

Arrives: a task's name.  Leaves: `About`.  It deliberately does not know how a task is scored.  The
year is that of the paper or release that first published the questions; of the Mosaic Eval Gauntlet
it is the one on its page.  A licence is that of the data set's page or repository.
"""

from miron_jax.definitions.records import About

_BIG = 2022  # BIG-bench, Srivastava et al.
_AGI = 2023  # AGIEval, Zhong et al.
_MOSAIC = 2023  # MosaicML's, in llm-foundry
_MERA = 2024

_ABOUT: dict[str, tuple[int | None, str]] = {
    # CORE and the Mosaic Eval Gauntlet
    "agi_eval_lsat_ar": (_AGI, "law school admission test: logic games"),
    "agi_eval_lsat_lr": (_AGI, "law school admission test: flaws and support of arguments"),
    "agi_eval_lsat_rc": (_AGI, "law school admission test: questions on a passage"),
    "agi_eval_sat_en": (_AGI, "US college entrance test: questions on a passage"),
    "agi_eval_sat_math": (_AGI, "US college entrance test: mathematics"),
    "aqua": (2017, "algebra in words, with a reasoned answer"),
    "arc_challenge": (2018, "school science, questions that word overlap does not answer"),
    "arc_easy": (2018, "school science"),
    "bbq": (2022, "social bias in questions whose passage leaves the answer open or not"),
    "bigbench_conceptual_combinations": (_BIG, "what new combinations of words mean"),
    "bigbench_conlang_translation": (_BIG, "sentences of a made-up language, to and from English"),
    "bigbench_cs_algorithms": (_BIG, "longest common subsequences and balanced brackets"),
    "bigbench_dyck_languages": (_BIG, "which brackets close an open sequence"),
    "bigbench_elementary_math_qa": (_BIG, "arithmetic in words"),
    "bigbench_language_identification": (_BIG, "which language a sentence is in"),
    "bigbench_logical_deduction": (_BIG, "the order of things that statements compare"),
    "bigbench_misconceptions": (_BIG, "which claim is a common error"),
    "bigbench_novel_concepts": (_BIG, "what unlike things have in common"),
    "bigbench_operators": (_BIG, "arithmetic with operators defined in the question"),
    "bigbench_qa_wikidata": (_BIG, "facts of Wikidata as sentences to complete"),
    "bigbench_repeat_copy_logic": (_BIG, "text to be repeated as told"),
    "bigbench_strange_stories": (_BIG, "why people in a story act as they do"),
    "bigbench_strategy_qa": (_BIG, "yes or no, by several facts that are not named"),
    "bigbench_understanding_fables": (_BIG, "the moral of a fable"),
    "boolq": (2019, "yes or no, by a passage"),
    "commonsense_qa": (2019, "everyday knowledge, four choices (the fifth is left out)"),
    "copa": (2011, "cause or effect of what happened"),
    "coqa": (2018, "a conversation about a passage"),
    "enterprise_pii_classification": (2023, "whether a business text holds personal data"),
    "gsm8k": (2021, "school arithmetic in words, with a reasoned answer"),
    "hellaswag": (2019, "how a described scene goes on"),
    "human_eval": (2021, "Python functions from their descriptions"),
    "human_eval_25": (_MOSAIC, "the same, a quarter of the solution given"),
    "human_eval_50": (_MOSAIC, "the same, half of the solution given"),
    "human_eval_75": (_MOSAIC, "the same, three quarters of the solution given"),
    "human_eval_cpp": (2023, "the same in C++"),
    "human_eval_js": (2023, "the same in JavaScript"),
    "human_eval_return_complex": (_MOSAIC,
        "the same, the other 127 problems"),
    "human_eval_return_simple": (_MOSAIC,
        "the same, 37 problems that end in a plain `return NAME`"),
    "jeopardy": (_MOSAIC, "quiz clues, answered by a name or term"),
    "lambada_openai": (2016, "the last word of a passage"),
    "logi_qa": (2020, "logic questions of civil service exams"),
    "math_qa": (2019, "arithmetic in words, four choices (the fifth is left out)"),
    "mmlu": (2019, "57 subjects of school, university and professions"),
    "openbook_qa": (2018, "elementary science, applied"),
    "piqa": (2019, "how to do everyday physical things"),
    "pubmed_qa_labeled": (2019, "yes, no or maybe, by an abstract of medicine"),
    "simple_arithmetic_nospaces": (_MOSAIC, "sums written without blanks"),
    "simple_arithmetic_withspaces": (_MOSAIC, "sums written with blanks"),
    "siqa": (2019, "what people feel, want and do next"),
    "squad": (2016, "a span of a passage that answers"),
    "svamp": (2021, "arithmetic stories, varied so that patterns mislead"),
    "triviaqa_sm_sub": (2017, "trivia, a sample"),
    "winogender_mc_female": (2018, "whom a pronoun means, in sentences on occupations"),
    "winogender_mc_male": (2018, "whom a pronoun means, in sentences on occupations"),
    "winograd": (2012, "whom a pronoun means"),
    "winogrande": (2020, "which of two names fills a gap"),
    # OLMES and OlmoBaseEval, beside those above
    "basic_skills": (2025, "arithmetic, patterns, strings, logic and code of few steps"),
    "codex_humaneval": (2021, "Python functions from their descriptions"),
    "codex_mbpp": (2021, "short Python programs from a sentence"),
    "copycolors": (None, "a colour that the question has just named"),
    "csqa": (2019, "everyday knowledge, five choices"),
    "drop": (2019, "numbers, dates and spans by a passage"),
    "lab_bench_dbqa": (2024, "what databases of biology hold"),
    "lab_bench_protocolqa": (2024, "what is wrong in a protocol of a laboratory"),
    "lambada": (2016, "the last word of a passage"),
    "medmcqa": (2022, "entrance exams of medical schools in India"),
    "medqa_en": (2020, "the medical licensing exam of the US"),
    "minerva_math": (2021, "competition mathematics with worked solutions"),
    "mt_mbpp": (2025, "short programs from a sentence, in 17 languages"),
    "naturalqs_open": (2019, "questions that people asked a search engine"),
    "openbookqa": (2018, "elementary science, applied"),
    "qasper_yesno": (2021, "yes or no, by a scientific paper"),
    "sciq": (2017, "school science, written by a crowd"),
    "sciriff_yesno": (2024, "yes or no, by texts of science"),
    "socialiqa": (2019, "what people feel, want and do next"),
    # MIRON
    "en": (None, "English beginnings with one right continuation: morphology, facts, logic, noise"),
    "ru": (None, "Russian beginnings with one right continuation: morphology, facts, logic, noise"),
    # MERA
    "bps": (_MERA, "whether brackets are balanced"),
    "chegeka": (2022, "clues of a Russian quiz show"),
    "lcs": (_MERA, "the length of two texts' longest common subsequence"),
    "mamuramu": (_MERA, "exam questions of 57 subjects, written in Russian"),
    "mathlogicqa": (_MERA, "mathematics and logic in words"),
    "multiq": (2022, "answers that take two passages together"),
    "parus": (2020, "cause or effect of what happened"),
    "rcb": (2020, "whether one text follows from another"),
    "rucodeeval": (_MERA, "Python functions from Russian descriptions"),
    "rudetox": (2022, "rude sentences put politely"),
    "ruethics": (2022, "what people would say of a deed, by five views of ethics"),
    "ruhatespeech": (_MERA, "which reply is without hatred"),
    "ruhhh": (_MERA, "which answer is more helpful, honest or harmless"),
    "ruhumaneval": (_MERA, "HumanEval in Russian"),
    "rummlu": (_MERA, "MMLU in Russian"),
    "rumodar": (_MERA, "arithmetic with an operation defined in the question"),
    "rumultiar": (_MERA, "arithmetic of several operations"),
    "ruopenbookqa": (2022, "elementary science in Russian"),
    "rutie": (_MERA, "a dialogue in which a person is to be imitated"),
    "ruworldtree": (2022, "school science in Russian"),
    "rwsd": (2020, "whom a pronoun means"),
    "simplear": (_MERA, "sums of numbers"),
    "use": (_MERA, "Russian language in the state exam"),
    # Eval-UA-tion
    "lmes_catsbin": (2024, "whether words belong to one group"),
    "lmes_catsmc": (2024, "the word that belongs to no group"),
    "lmes_low": (2024, "the letter at a place of a word"),
    "lmes_wis": (2024, "the word at a place of a sentence"),
    "lmes_wordalpha": (2024, "which of two words comes first in the dictionary"),
    "lmes_wordlength": (2024, "which of two words has more letters"),
    "ua_cbt": (2024, "the word missing in a tale"),
    "ua_cbt_cloze": (2024, "the word missing in a tale, each in its place"),
    "up_masked": (2024, "the title of a news article, numbers hidden"),
    "up_masked_refcompat": (2024, "the same, choices as the authors' code shows them"),
    "up_unmasked": (2024, "the title of a news article"),
}  # fmt: skip


NOT_STATED = "not stated"
_LICENCES = {"miron": "MIT", "mera-v1": "MIT", "mera-v1.2": "MIT"}  # of whole suites
_OF_THIS_PROGRAM = "Apache-2.0"  # of generated rows
# of Eval-UA-tion's data sets; the pages of the other four have no line about it
_NONCOMMERCIAL = ("ua_cbt", "up_masked", "up_unmasked", "lmes_catsbin", "lmes_catsmc")


def _licence(suite: str, name: str) -> str:
    if suite.startswith(("miron-gen", "eval-ua-tion-gen")):
        return _OF_THIS_PROGRAM
    if suite.startswith("eval-ua-tion") and name.startswith(_NONCOMMERCIAL):
        return "CC BY-NC 4.0"
    return _LICENCES.get(suite, NOT_STATED)


def about(task_name: str) -> About | None:
    """The `About` of a task such as "core/arc_easy"; None for a user's task."""
    suite, _, name = task_name.partition("/")
    name = name.removesuffix("_zeroshot")
    if suite == "olmes":  # a task's forms have its name before theirs
        name = max((known for known in _ABOUT if name.startswith(known)), key=len, default=name)
    if suite.startswith("own-") or name not in _ABOUT:
        return None
    licence = _licence(suite, name)
    if name in ("en", "ru"):
        return About(f"{suite.partition('-')[0]}/{name}", *_ABOUT[name], licence)
    return About(name, *_ABOUT[name], licence)
