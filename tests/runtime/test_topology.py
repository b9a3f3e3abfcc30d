"""What is read off a TPU's compiled program, and what is said where its compiler cannot be used; none of it needs libtpu."""

from importlib.metadata import PackageNotFoundError

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from miron_jax.engine.forward import Forward
from miron_jax.engine.model import load_model
from miron_jax.errors import InputError
from miron_jax.kernels.forest_attention import IMPLEMENTATIONS
from miron_jax.kernels.forest_attention.choose import Heads
from miron_jax.model.costs import cost_model
from miron_jax.model.network import heads_of
from miron_jax.model.own import OwnModel
from miron_jax.planning.plan import make_plan
from miron_jax.runtime import topology
from miron_jax.runtime.devices import Placement
from miron_jax.runtime.topology import described_devices, larger
from miron_jax.runtime.tpu_cycles import cycles_of, kernel_calls
from tests.support.requests import requests_of

pytestmark = pytest.mark.newest

HLO = """
HloModule jit_score, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %inside = f32[8]{0} add(%p, %p), backend_config={"estimated_cycles":"1000000"}
}

%body (arg: (s32[], f32[8])) -> (s32[], f32[8]) {
  %arg = (s32[], f32[8]{0}) parameter(0)
  %one = f32[8]{0} fusion(%arg), calls=%fused, metadata={op_name="jit(f)/layers/while/body/linear"}, backend_config={"estimated_cycles":"100"}
  %two = f32[8]{0} custom-call(%one), custom_call_target="tpu_custom_call", metadata={op_name="attend"}
  ROOT %out = (s32[], f32[8]{0}) tuple(%one, %two)
}

%counted (arg: (s32[], f32[8])) -> pred[] {
  %limit = s32[]{:T(128)} constant(16), backend_config={}
  %arg.1 = (s32[], f32[8]{0}) parameter(0)
  %index = s32[] get-tuple-element(%arg.1), index=0
  ROOT %lt = pred[] compare(%index, %limit), direction=LT
}

%chunk (arg: (s32[], f32[8])) -> (s32[], f32[8]) {
  %arg.2 = (s32[], f32[8]{0}) parameter(0)
  ROOT %three = (s32[], f32[8]{0}) copy(%arg.2), backend_config={"estimated_cycles":"7"}
}

%unknown (arg: (s32[], f32[8])) -> pred[] {
  %arg.3 = (s32[], f32[8]{0}) parameter(0)
  %index.1 = s32[] get-tuple-element(%arg.3), index=0
  %limit.1 = s32[] get-tuple-element(%arg.3), index=1
  ROOT %lt.1 = pred[] compare(%index.1, %limit.1), direction=LT
}

%dear (x: f32[8]) -> f32[8] {
  ROOT %x = f32[8]{0} copy(%q), backend_config={"estimated_cycles":"50"}
}

%cheap (y: f32[8]) -> f32[8] {
  ROOT %y = f32[8]{0} copy(%q), backend_config={"estimated_cycles":"3"}
}

ENTRY %main (a: f32[8]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %start = (s32[], f32[8]{0}) copy(%a), backend_config={"estimated_cycles":"5"}
  %while.1 = (s32[], f32[8]{0}) while(%start), condition=%counted, body=%body, metadata={op_name="jit(f)/layers/while"}
  %while.2 = (s32[], f32[8]{0}) while(%while.1), condition=%unknown, body=%chunk, metadata={op_name="jit(f)/target_logprob/while"}
  %choice = f32[8]{0} conditional(%while.2), branch_computations={%dear, %cheap}, metadata={op_name="jit(f)/cond"}
  ROOT %end = f32[8]{0} copy(%choice), backend_config={"estimated_cycles":"2"}
}
"""  # noqa: E501 - as a compiler writes it


def test_cycles_are_added_up_with_the_iterations_of_loops() -> None:
    outside = 5 + 2 + 50  # the dearer branch
    assert cycles_of(HLO, {}) == outside + 16 * 100 + 7
    assert cycles_of(HLO, {"target_logprob/while": 3}) == outside + 16 * 100 + 3 * 7
    assert cycles_of(HLO, {"layers/while": 2}) == outside + 2 * 100 + 7
    assert kernel_calls(HLO) == 1


@pytest.mark.parametrize(
    ("installed", "name", "words"),
    [
        (None, "v5e:2x2", r'libtpu, .*, is not installed: install it by pip install "miron-jax\[tpu\]"'),
        ("0.0.30", "v5e:2x2", rf"libtpu is 0\.0\.30, but jax {jax.__version__} goes with ==0\.0\.42\.\*"),
        (None, "h100:1x1x1", r'jax-cuda13-plugin, .*, is not installed: install it by pip install "miron-jax\[cuda\]"'),
        ("0.10.1", "h100:1x1x1", rf"jax-cuda13-plugin is 0\.10\.1, but jax {jax.__version__} goes with <=0\.10\.2,>=0"),
    ],
)
def test_no_compiler_or_an_older_one_is_refused(
    installed: str | None, name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(topology, "version", version)
    wanted = ['libtpu==0.0.42.*; extra == "tpu"', 'jax-cuda13-plugin<=0.10.2,>=0.10.2; extra == "cuda13"']
    monkeypatch.setattr(topology, "requires", lambda name: ["numpy>=2", *wanted])
    with pytest.raises(InputError, match=words):
        described_devices(name)


@pytest.mark.parametrize(
    "name",
    [
        *("v9:2x2", "v5e", "v5e:", "v5e:2", "v5e:2x", "2x2", "", "v5e:2x2x2x2", "v5e:-1x2"),
        *("h300:1x1x1", "H100:1x1x1", "h100", "h100:8", "h100:1x8", "h100:1x1x0", "h100:1x1x1x1"),
    ],
)
def test_an_unknown_topology_is_refused_before_its_compiler_is_asked(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topology, "version", lambda name: pytest.fail("asked"))
    with pytest.raises(
        InputError, match=r"is not a known topology, expected a chip and sizes .* v5p:2x2x1, .* h100:1x1x1"
    ):
        described_devices(name)


def test_larger_topologies_come_from_the_smallest() -> None:
    assert larger("v5e:4x4") == ["v5e:4x8", "v5e:8x8", "v5e:8x16", "v5e:16x16"]
    assert larger("v5p:2x2x1")[0] == "v5p:2x2x2"
    assert larger("v6e:16x16") == []
    assert larger("h100:1x1x4") == ["h100:1x1x8", "h100:1x2x8", "h100:1x4x8"]


@pytest.mark.parametrize("refusals", [2, 99])
def test_a_batch_that_the_compiler_refuses_is_halved(refusals: int, place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TPU's compiler refuses a program that its chip's memory cannot hold; if that has one row, the run ends."""
    model, compile_program, tried = load_model(place.model, "float32"), Placement.compile, list[int]()

    def refusing(self: Placement, function, shared, split, *more):
        tried.append(1)
        if len(tried) <= refusals:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory on HBM")
        return compile_program(self, function, shared, split, *more)

    monkeypatch.setattr(Placement, "compile", refusing)
    requests = requests_of([([i, *range(1, 20)], 10) for i in range(1, 17)])
    plan, forward = make_plan(requests, cost_model(model.config), (32,)), Forward(model, 16 * 32)
    if refusals > 4:
        with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
            list(forward.run(plan))
        return
    scored = list(forward.run(plan))
    assert forward.shard_rows(32) == 4
    assert sum(len(batch.rows) for batch in scored) == plan.num_rows
    assert all(np.isfinite(batch.logprob).all() for batch in scored)


def attending(**rules) -> OwnModel:
    """A model that calls attend in a scan and in a function of its own jit."""

    def hidden(params, token_ids, positions, visibility):
        x = params["ids"][token_ids]
        q = x.reshape(*x.shape[:2], 4, 8)

        @jax.jit
        def inside(q, visibility):
            return visibility.attend(q, q[:, :, :2], q[:, :, :2], scale=1.0, **rules)

        def layer(x, _):
            return x + visibility.attend(q, q, q, scale=1.0, window=5).reshape(x.shape), None

        return jax.lax.scan(layer, x + inside(q, visibility).reshape(x.shape), None, 3)[0]

    params = {"ids": jax.ShapeDtypeStruct((50, 32), "float32")}
    return OwnModel(50, hidden=hidden, head=lambda params: params["ids"], params=params)


def test_the_heads_of_a_users_own_model_are_those_it_attends_with() -> None:
    model = attending(softcap=20.0)
    expected = [Heads(4, 2, 8, 20.0, "float32"), Heads(4, 4, 8, None, "float32")]
    for _ in range(2):
        assert heads_of(model, model.params) == expected, "a second trace finds them again"
    # A soft cap that is an array takes plain attention.
    model = attending(softcap=jnp.float32(20.0))
    first, other = heads_of(model, model.params)
    assert {first.dtype, other.dtype} == {"a soft cap that is an array", "float32"}
    assert not any(first.dtype in row.dtypes and other.dtype in row.dtypes for row in IMPLEMENTATIONS.values())


def test_a_model_that_does_not_call_attend_has_no_heads() -> None:
    params = {"ids": jax.ShapeDtypeStruct((50, 32), "float32")}
    masked = OwnModel(
        50,
        hidden=lambda params, ids, positions, visibility: jnp.where(visibility.mask().any(), params["ids"][ids], 0.0),
        head=lambda params: params["ids"],
    )
    assert heads_of(masked, params) == []
    logits = OwnModel(50, logits=lambda params, ids: params["ids"][ids] @ params["ids"].T)
    assert heads_of(logits, params) == []
