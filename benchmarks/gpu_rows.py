"""What `gpu_suite.py` printed -> rows of the table of GPUs in docs/speed.md.

    python benchmarks/gpu_rows.py benchmarks/results/gpu_core.json ...

Each file's last line is the JSON of a slice, or of the whole suite.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from miron_jax.files.readers import JsonObject

PEERS = {
    "one_example_a_forward": "torch, one example a forward",
    "sorted_batches": "torch, sorted batches",
    "lm_eval": "lm-eval's HF backend",
    "vllm": "vLLM",
}


def main() -> None:
    for name in sys.argv[1:]:
        document = json.loads(Path(name).read_text().splitlines()[-1])
        print("\n".join(rows_of({k: v for k, v in document.items() if isinstance(v, dict)})))


def rows_of(reports: dict[str, JsonObject]) -> Iterator[str]:
    """Rows of docs/speed.md's table of a GPU; what is wrong or failed."""
    for name, report in reports.items():
        if problem := report.get("failed") or report.get("skipped"):
            yield f"{name}: {problem}"
        elif name == "first_result":
            seconds = [f"{report[each]['wall_seconds']:.1f}" for each in ("cold", "with_programs")]
            yield f"| first result of CORE, GPT-2; with kept programs | {'; '.join(seconds)} s |"
        elif name.startswith("core_"):
            later = report["next_checkpoint"]
            rate = report["unique_tokens"] / later["seconds"] / 1e6
            share = f", {later['share_of_peak']:.1%} of peak" if later["share_of_peak"] else ""
            yield (
                f"| {name}, {report['examples']} examples, next checkpoint | "
                f"{later['seconds']:.2f} s, {rate:.2f} M unique tokens/s{share}, "
                f"idle {later['idle_share']:.1%}, {report['attention']} |"
            )
        elif name == "experts":
            shares = [f"{each}: {of['share_of_dense']:.2f}" for each, of in report.items()]
            yield f"| experts, of the dense rate | {', '.join(shares)} |"
        elif name == "mamba":
            each = [f"{kind} {value:.2f} s" for kind, value in report["seconds"].items()]
            yield f"| Mamba | {', '.join(each)} |"
        elif name == "parity":
            for shape in ("gpt2_124m", "nanochat_d20_561m"):
                kinds = ("float32", "bfloat16", "torch_bfloat16")
                nats = ", ".join(f"{kind} {report[shape][kind]['largest']:.1e}" for kind in kinds)
                yield f"| {shape}, largest difference from torch, nats | {nats} |"
            yield from (f"WRONG: {line}" for line in report["wrong"])
        elif name == "kernels":
            seconds = {k: v for k, v in report["attention"].items() if not isinstance(v, str)}
            milliseconds = ", ".join(f"{label} {1e3 * v:.2f}" for label, v in seconds.items())
            yield f"| attention of a layer, ms | {milliseconds} |"
        elif name == "peers":
            for peer, what in PEERS.items():
                if peer in report:
                    times = report[peer]["times_ours"] or report[peer]["failed"]
                    yield f"| {what}, times ours | {times} |"


if __name__ == "__main__":
    main()
