"""ruDetox's three classifiers: the same probabilities as torch's, calibrated as scikit-learn does, and the J of a run."""

import io
import json
import pickle
import shutil
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from miron_jax.errors import InputError
from miron_jax.evaluation.detox_scorer import ROLES, Classifiers, detox_scorer
from miron_jax.files.pickles import Pickled, read_pickle
from miron_jax.metrics.calibration import Calibration, first_calibration, read_calibrations
from miron_jax.model.checkpoints.torch_file import torch_tensors
from miron_jax.model.encoder import label_logits
from tests.support.classifiers import FLUENCY, MEANING, PHRASES, STYLE, classifier, probabilities
from tests.support.command import command, run, samples
from tests.support.mera_records import write_mera
from tests.support.tiny_model import make_model
from tests.support.tolerances import FLOAT64, METRIC, ROUNDING, TOKEN

pytestmark = pytest.mark.slow

PROBED = np.linspace(0, 1, 4001).astype(np.float32)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Style, meaning, fluency."""
    folder = tmp_path_factory.mktemp("classifiers")
    return [
        classifier(folder / "style", "bert", STYLE, 1, layer_norm_eps=0.3),
        classifier(folder / "meaning", "bert", MEANING, 1, hidden_act="gelu_new"),
        classifier(folder / "fluency", "roberta", FLUENCY, 2, layer_norm_eps=0.1, hidden_act="relu"),
    ]


@pytest.fixture
def uncalibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("miron_jax.evaluation.detox_scorer.first_calibration", lambda: lambda values: values)


def flag(folders: list[Path], *more: Path) -> str:
    return ",".join(map(str, (*folders, *more)))


# Of one token to more than 512, empty, and with the name of a special token.
REWRITES = [*PHRASES, "", "кот <pad> и [SEP] пёс", " ".join(PHRASES * 9), " ".join(PHRASES * 60)]
ORIGINALS = [*reversed(PHRASES), "сам", "ты кот", "", " ".join(PHRASES * 50)]


def num_programs() -> int:
    return label_logits._cache_size()  # pyright: ignore[reportAttributeAccessIssue]


def raw(folders: list[Path]) -> list[np.ndarray]:
    style, meaning, fluency = folders
    return [
        probabilities(style, 0, REWRITES),
        probabilities(meaning, 1, ORIGINALS, REWRITES),
        probabilities(fluency, 1, REWRITES),
    ]


@pytest.mark.usefixtures("uncalibrated")
def test_probabilities_are_torchs_of_each_text_alone(folders: list[Path]) -> None:
    expected = raw(folders)
    scored = detox_scorer(flag(folders))(ORIGINALS, REWRITES)
    for values, wanted in zip(scored, expected, strict=True):
        assert wanted.max() - wanted.min() > 0.05  # the texts differ
        assert values == pytest.approx(wanted, abs=TOKEN)  # of p it is p times that of log p
    # batch mates and their order move nothing: 40 texts in other rows
    again = detox_scorer(flag(folders))([*ORIGINALS[::-1] * 4], [*REWRITES[::-1] * 4])
    for values, wanted in zip(again, expected, strict=True):
        assert values == pytest.approx(np.tile(wanted[::-1], 4), abs=TOKEN)
    # rows of 32, 64, 256 and 512 slots; a number of texts that is no power of two takes no further program
    before = num_programs()
    detox_scorer(flag(folders))(ORIGINALS[:7], REWRITES[:7])
    assert num_programs() == before


@pytest.mark.usefixtures("uncalibrated")
def test_what_torch_save_wrote_gives_the_same(folders: list[Path], tmp_path: Path) -> None:
    """float32, float16 and bfloat16, a transposed view, and one storage of two tensors."""
    import torch

    tensors = {name: torch.from_numpy(array) for name, array in load_file(folders[0] / "model.safetensors").items()}
    names = [name for name in tensors if name.endswith("query.weight")]
    tensors[names[0]] = tensors[names[0]].T.contiguous().T
    both = torch.cat([tensors["bert.pooler.dense.weight"], tensors[names[1]]])
    tensors["bert.pooler.dense.weight"], tensors[names[1]] = both[:16], both[16:]
    tensors["bert.embeddings.position_ids"] = torch.arange(512)[None]
    expected = detox_scorer(flag(folders))(ORIGINALS, REWRITES)
    folder = tmp_path / "style"
    folder.mkdir()
    for path in folders[0].iterdir():
        if path.suffix == ".json":
            (folder / path.name).write_bytes(path.read_bytes())
    torch.save(tensors, folder / "pytorch_model.bin")
    values = detox_scorer(flag([folder, *folders[1:]]))(ORIGINALS, REWRITES)
    assert [*map(np.ndarray.tolist, values)] == [*map(np.ndarray.tolist, expected)]
    for dtype in (torch.float16, torch.bfloat16):
        rounded = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
        torch.save(rounded, folder / "pytorch_model.bin")
        contiguous = {name: np.ascontiguousarray(tensor.float().numpy()) for name, tensor in rounded.items()}
        save_file(contiguous, tmp_path / "model.safetensors")
        [pickled, *_] = detox_scorer(flag([folder, *folders[1:]]))(ORIGINALS, REWRITES)
        (tmp_path / "model.safetensors").rename(folder / "model.safetensors")
        [plain, *_] = detox_scorer(flag([folder, *folders[1:]]))(ORIGINALS, REWRITES)
        assert pickled.tolist() == plain.tolist() != expected[0].tolist()
        (folder / "model.safetensors").unlink()
    content = (folder / "pytorch_model.bin").read_bytes()
    for damaged in (content[:-100], b"no zip", b"", content[: len(content) // 2]):
        (folder / "pytorch_model.bin").write_bytes(damaged)
        with pytest.raises(InputError, match=r"pytorch_model\.bin: .*expected a dict of tensors"):
            detox_scorer(flag([folder, *folders[1:]]))


@pytest.mark.usefixtures("uncalibrated")
def test_older_files_of_a_tokenizer_give_the_same(folders: list[Path], tmp_path: Path) -> None:
    """vocab.txt, or vocab.json and merges.txt, in place of tokenizer.json."""
    older = [shutil.copytree(folder, tmp_path / folder.name) for folder in folders]
    for folder in older:
        Tokenizer.from_file(str(folder / "tokenizer.json")).model.save(str(folder))
        (folder / "tokenizer.json").unlink()
    scored = zip(
        detox_scorer(flag(folders))(ORIGINALS, REWRITES), detox_scorer(flag(older))(ORIGINALS, REWRITES), strict=True
    )
    for whole, of_older in scored:
        assert whole.tolist() == of_older.tolist()


@pytest.mark.usefixtures("uncalibrated")
def test_published_names_three_repositories_of_the_hub(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has its weights in pytorch_model.bin alone, which is downloaded where there is nothing else."""
    import torch

    names = [role.repository for role in ROLES]
    kept = {name: shutil.copytree(folder, tmp_path / name) for name, folder in zip(names, folders, strict=True)}
    pickled = kept[names[0]] / "pytorch_model.bin"
    tensors = load_file(kept[names[0]] / "model.safetensors")
    (kept[names[0]] / "model.safetensors").unlink()
    asked = []

    def snapshot(name: str, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append((name, allow_patterns[-1]))
        if allow_patterns[-1] == pickled.name:
            torch.save({name: torch.from_numpy(array) for name, array in tensors.items()}, pickled)
        return str(kept[name])

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    scored = zip(
        detox_scorer("published")(ORIGINALS, REWRITES), detox_scorer(flag(folders))(ORIGINALS, REWRITES), strict=True
    )
    for published, local in scored:
        assert published.tolist() == local.tolist()
    safetensors = [(name, "*.safetensors") for name in names]
    assert asked == [safetensors[0], (names[0], pickled.name), *safetensors[1:]]


def fail(reason: str) -> None:
    raise AssertionError(reason)


class Calls:
    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return fail, ("a pickle was run",)


def test_nothing_that_a_pickle_names_is_called(folders: list[Path], tmp_path: Path) -> None:
    import torch

    value = read_pickle(io.BytesIO(pickle.dumps([1, Calls()])))
    assert isinstance(value[1], Pickled)
    assert (value[0], value[1].args) == (1, ("a pickle was run",))
    for path in folders[0].iterdir():
        if path.suffix == ".json":
            (tmp_path / path.name).write_bytes(path.read_bytes())
    torch.save({"a": Calls()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"a is .*, expected a tensor"):
        detox_scorer(flag([tmp_path, *folders[1:]]))


@pytest.mark.parametrize("frame", [b"", b"\x95" + (7).to_bytes(8, "little")])
def test_a_pickle_takes_no_room_for_places_that_it_skips(frame: bytes) -> None:
    """BININT1 1, LONG_BINPUT at place 2 ** 22, LONG_BINGET of it; also where a frame ends within the second."""
    place = (1 << 22).to_bytes(4, "little")
    tracemalloc.start()
    assert read_pickle(io.BytesIO(b"\x80\x04" + frame + b"(K\x01r" + place + b"j" + place + b"t.")) == (1, 1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.parametrize(
    ("member", "change", "why"),
    [
        ("byteorder", {"compress_type": zipfile.ZIP_DEFLATED}, "byte order is not little-endian"),
        ("data.pkl", {"compress_type": zipfile.ZIP_DEFLATED}, r"no data\.pkl in it"),
        ("data/0", {"compress_type": zipfile.ZIP_DEFLATED}, "has no storage"),
        ("data/0", {"file_size": 1 << 20}, "has no storage"),
    ],
)
def test_members_of_torchs_zip_are_as_long_as_they_say(
    tmp_path: Path, member: str, change: dict[str, int], why: str
) -> None:
    import torch

    torch.save({"a": torch.ones(5)}, tmp_path / "whole.bin")
    changed = tmp_path / "changed.bin"
    with zipfile.ZipFile(tmp_path / "whole.bin") as whole, zipfile.ZipFile(changed, "w") as copy:
        for each in whole.infolist():
            is_changed = each.filename.endswith(f"/{member}")
            copy.writestr(each.filename, whole.read(each), change.get("compress_type") if is_changed else None)
            if is_changed and "file_size" in change:
                copy.getinfo(each.filename).file_size = change["file_size"]
    with ExitStack() as files:
        assert torch_tensors(tmp_path / "whole.bin", files)["a"].array[:].tolist() == [1] * 5
        with pytest.raises(InputError, match=rf"{why}.*expected a dict of tensors"):
            torch_tensors(changed, files)


def test_calibrations_are_scikit_learns(folders: list[Path], tmp_path: Path) -> None:
    from sklearn.isotonic import IsotonicRegression

    path, rng, fitted = tmp_path / "calibrations.pkl", np.random.default_rng(0), []
    for dtype in (np.float64, np.float32, np.float64):
        x = rng.random(300).astype(dtype)
        y = (rng.random(300) < x).astype(dtype)
        fitted.append(IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(x, y))
    path.write_bytes(
        b"".join(pickle.dumps(each, protocol=protocol) for each, protocol in zip(fitted, (4, 3, 4), strict=True))
    )
    tables = read_calibrations(path, 3)
    for table, each in zip(tables, fitted, strict=True):
        single = each.X_thresholds_.dtype == np.float32
        assert table(PROBED) == pytest.approx(each.predict(PROBED[:, None]), abs=ROUNDING if single else FLOAT64)
    expected = [table(values) for table, values in zip(tables, raw(folders), strict=True)]
    for values, wanted in zip(detox_scorer(flag(folders, path))(ORIGINALS, REWRITES), expected, strict=True):
        assert values == pytest.approx(wanted, abs=METRIC)  # a table is steep between its steps
    for content, why in (
        (b"", "no pickle: pickle exhausted"),
        (pickle.dumps(fitted[0]), "no pickle: pickle exhausted"),  # the published scoring code reads the first alone
        (pickle.dumps({"a": 1}) * 3, "holds {'a': 1}"),
        (pickle.dumps(IsotonicRegression().fit([0, 1], [0, 1])) * 3, "out_of_bounds is 'nan'"),
        (pickle.dumps(IsotonicRegression(out_of_bounds="clip").fit([0, 1], [0, 3.0])) * 3, "numbers outside 0 to 1"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"{why}.*expected 3 pickles"):
            detox_scorer(flag(folders, path))
    with pytest.raises(InputError, match=r"none\.pkl: No such file"):
        detox_scorer(flag(folders, tmp_path / "none.pkl"))


def test_the_table_of_the_package_is_meras() -> None:
    """MERA's spec has 0.313 at one half.  Its steps are flat: 0.3129 from 0.4457 to 0.6144; half way between the first two
    of them lies the mean of 0 and 3 / 77; below the first and beyond the last step nothing moves."""
    table = first_calibration()
    assert [len(each) for each in table] == [96, 96]
    values = table(np.array([0.5, 0.45, 0.0, 1.0, (0.00034440000000002247 + 0.00034559999999994595) / 2]))
    assert values == pytest.approx([87 / 278, 87 / 278, 0, 1, 1.5 / 77], abs=FLOAT64)
    assert isinstance(table, Calibration)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"id2label": {"0": "toxic", "1": "neutral"}},
            "labels are toxic, neutral, but MERA takes .* label 0 for style",
        ),
        ({"id2label": {"0": "neutral"}}, r"classifier.weight is F32 of the shape \[2, 16\], config.json expects"),
        ({"model_type": "gpt2"}, "model_type is 'gpt2', expected bert or roberta"),
        ({"max_position_embeddings": 511}, r"position_embeddings.weight is .*\[512, 16\]"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"num_attention_heads": 3}, "a divisor of hidden_size, 16"),
        ({"hidden_act": "mish"}, "hidden_act is 'mish'"),
        ({"num_hidden_layers": 3}, r"no tensor bert\.encoder\.layer\.2\."),
    ],
)
def test_other_classifiers_are_refused(
    folders: list[Path], tmp_path: Path, change: dict[str, object], why: str
) -> None:
    for path in folders[0].iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    fields = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(fields))
    with pytest.raises(InputError, match=why):
        detox_scorer(flag([tmp_path, *folders[1:]]))


def test_other_names_are_refused(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    style, meaning, fluency = folders
    for name in ("detox", "a,b", flag([*folders, style]), "", "published,", f"published,{style}"):
        with pytest.raises(InputError, match=r"expected package\.module:function, or published, or three classifiers"):
            detox_scorer(name)
    (tmp_path / "empty").mkdir()
    for name, why in (
        (flag([style, style, fluency]), "labels are neutral, toxic, but MERA takes .* 'paraphrase' for meaning"),
        (flag([fluency, meaning, style]), "labels are neutral, toxic, but MERA takes .* label 1 for fluency"),
        (flag([tmp_path / "empty", meaning, fluency]), "config.json: no such file"),
        (flag([tmp_path / "none", meaning, fluency]), "--detox_scorer=.*none: no such folder, and not a hub id"),
        (flag([style / "config.json", meaning, fluency]), "is a file, expected the folder of a classifier"),
        ("mine:score", "--detox_scorer=mine:score: no module mine"),
    ):
        with pytest.raises(InputError, match=why):
            detox_scorer(name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match=f"--detox_scorer={ROLES[0].repository}: .*the hub is out of reach"):
        detox_scorer("published")
    tensors = load_file(style / "model.safetensors")
    for path in style.iterdir():  # without its tokenizer at first
        if not path.name.startswith("tokenizer"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(InputError, match=r"its tokenizer has 5 tokens, expected about \d+.*: put .* there"):
        detox_scorer(flag([tmp_path, meaning, fluency]))
    for path in style.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    del tensors["classifier.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"no tensor classifier\.weight .*a trained head"):
        detox_scorer(flag([tmp_path, meaning, fluency]))


@pytest.mark.parametrize("version", ["v1", "v1.2"])
def test_a_run_has_the_j_of_its_completions(
    version: str,
    folders: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """J by hand: the mean over pairs of the product of the three calibrated probabilities."""
    suite, data = f"mera-{version}", write_mera(tmp_path / "data", version, 4)  # pyright: ignore[reportArgumentType]
    records = [json.loads(line) for line in (data / "rudetox" / "test.jsonl").read_text().splitlines()]
    miron, output = command(monkeypatch, capsys), tmp_path / "run"
    results = run(
        miron, make_model(tmp_path / "model"), output, f"--tasks={suite}/rudetox", f"--data_dir={suite}={data}",
        f"--detox_scorer={flag(folders)}",
    )  # fmt: skip
    rows = samples(output, f"{suite}/rudetox")
    rewrites = [row["generated"].strip() for row in rows]
    originals = [record["inputs"] for record in records]
    style, meaning, fluency = folders
    table = first_calibration()
    sta = table(probabilities(style, 0, rewrites))
    sim = table(probabilities(meaning, 1, originals, rewrites))
    fl = table(probabilities(fluency, 1, rewrites))
    metrics = results["tasks"][f"{suite}/rudetox"]["metrics"]
    expected = {"sta": sta.mean(), "sim": sim.mean(), "fl": fl.mean(), "j": (sta * sim * fl).mean()}
    assert {name: metrics[name]["value"] for name in expected} == pytest.approx(expected, abs=METRIC)
    same, other = (cast(Classifiers, detox_scorer(flag([each, meaning, fluency]))) for each in (style, meaning))
    for scorer in (same, other):
        scorer([], [])
        assert scorer.fingerprints() == {}, "nothing is scored"
        scorer(ORIGINALS, REWRITES)
    kept = results["tasks"][f"{suite}/rudetox"]["classifiers"]
    assert kept == same.fingerprints()
    assert all(kept.values())
    differing = {name for name, digest in other.fingerprints().items() if digest != kept[name]}
    assert differing == {"style"}, "other weights show"
