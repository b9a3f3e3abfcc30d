"""What the tests of the lm-eval adapter share: the same weights here and in HFLM, and a task of each output type."""

import importlib.util
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.torch_folders import FOLDERS, torch_folder


@pytest.fixture(scope="session", autouse=True)
def _no_description_of_the_machine() -> Iterator[None]:
    """simple_evaluate's last act, which calls pip, git and lscpu for two processor seconds."""
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("lm_eval"):
            patch.setattr("lm_eval.evaluator.add_env_info", lambda storage: None)
        yield


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a kind's model, made once."""
    return cache(lambda kind: torch_folder(kind, tmp_path_factory.mktemp(kind)))


@pytest.fixture(scope="session")
def model_of(folder_of: Callable[[str], Path]) -> Callable[[str], Any]:
    """A kind's model here, made once: it keeps its compiled programs."""
    from miron_jax.lm_eval import MironLM

    return cache(lambda kind: MironLM(str(folder_of(kind))))


@pytest.fixture(scope="session")
def folder(folder_of: Callable[[str], Path]) -> Path:
    return folder_of("llama")


@pytest.fixture(scope="session")
def lm(model_of: Callable[[str], Any]) -> Any:
    return model_of("llama")


@pytest.fixture(scope="session", params=FOLDERS)
def pair(
    request: pytest.FixtureRequest, folder_of: Callable[[str], Path], model_of: Callable[[str], Any]
) -> tuple[Any, Any]:
    """The same weights here and in HFLM.

    Its `logits_cache` answers requests whose tokens are equal as one, wherever their continuations begin: "the  " + "hot"
    and "the " + " hot" then get one sum, of two tokens and of one.  In a batch a completion goes on behind its EOS until all
    have ended, and its text has what came then.
    """
    from tests.support.lm_eval_pair import hflm

    theirs = hflm(
        pretrained=str(folder_of(request.param)), dtype="float32", device="cpu", batch_size=1, logits_cache=False
    )
    return model_of(request.param), theirs


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """lm-eval's manager of one task of each output type, in local files."""
    from lm_eval.tasks import TaskManager

    from tests.support.lm_eval_pair import write_tasks

    return TaskManager(include_path=str(write_tasks(tmp_path_factory.mktemp("tasks"))), include_defaults=False)
