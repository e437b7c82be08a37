"""A mixture-of-experts transformer over ranks, end to end: Switchyard against torch's own all-to-all (gloo), in turns,
in one job.

    PYTHONPATH=build/python build/bin/switchyard run -n 4 -- /usr/bin/python3 bench/python/ep_versus_gloo.py
    PYTHONPATH=build/python build/bin/switchyard run -n 4 -- PYTHON bench/python/ep_versus_gloo.py --model mixtral

Both models begin with the same parameters and see the same tokens, and their losses are compared. A step is the time
from tokens to the gradients of the slowest rank (--forward: to logits); "of which" is the time inside the layers of
experts (forward), their matrix products included. --bare leaves the products of experts out, so that their transport is
what remains of "of which". --model takes a tiny model of transformers instead of a transformer of our own; for that
PYTHON must have transformers (build/integrations-venv/bin/python after `make test-integrations`).
"""

import argparse
import functools
import json
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "python"))
import gloo  # noqa: E402
import switchyard  # noqa: E402
import switchyard.torch  # noqa: E402
import torch_transformer  # noqa: E402

WARM_UP = 3
VOCABULARY = 256
SUMMARY = (
    "%(model)s, %(ranks)d ranks, %(tokens_a_rank)d tokens each, mode %(mode)s, median of %(turns)d turns: "
    "Switchyard %(switchyard_ms).2f ms (of which %(switchyard_inside_ms).2f), "
    "gloo %(gloo_ms).2f ms (of which %(gloo_inside_ms).2f): %(speedup).2f times as fast"
)


class Transport:
    """A function that runs experts over ranks, and how long that took."""

    def __init__(self, run_experts):
        self.run_experts = run_experts
        self.seconds = 0.0

    def __call__(self, *args):
        begin = time.perf_counter()
        y = self.run_experts(*args)
        self.seconds += time.perf_counter() - begin
        return y


class OwnModel:
    """The transformer of the tests, of any size."""

    def __init__(self, comm, options):
        self.options = options
        self.sizes = torch_transformer.Sizes(
            VOCABULARY, options.width, options.inner, options.layers, options.experts, options.topk
        )
        self.num_experts = options.experts
        self.moe = switchyard.MoE(
            comm,
            experts=options.experts,
            topk=options.topk,
            hidden=options.width,
            max_tokens=options.sequences * options.length,
            training=not options.forward,
        )

    def make(self, name, transport):
        class Experts(torch.nn.Module):
            def __init__(layer):
                super().__init__()
                layer.experts = torch.nn.ModuleDict(
                    {
                        str(number): (
                            torch.nn.Identity() if self.options.bare else torch_transformer.make_expert(self.sizes)
                        )
                        for number in self.moe.local_experts
                    }
                )

            def forward(layer, *routed):
                return transport(lambda number, rows: layer.experts[str(number)](rows), *routed)

        model = torch_transformer.Transformer(Experts, self.sizes)
        return lambda tokens: model.out(model.blocks(model.embed(tokens))), model


class TinyModel:
    """A model of transformers, whose experts we run."""

    def __init__(self, comm, options):
        import tiny_models
        from switchyard.integrations import transformers as sharding

        # gloo wants as many experts on each rank.
        self.new = lambda: tiny_models.make_model(
            options.model, **({"num_experts": 16} if options.model == "qwen3_moe" else {})
        )
        self.shard = lambda model: sharding.shard_experts_(
            model, comm, max_tokens=options.sequences * options.length, training=not options.forward
        )
        self.mlp_of = (lambda *layer: lambda number, rows: rows) if options.bare else sharding.mlp_of
        self.implementations = sharding.ALL_EXPERTS_FUNCTIONS
        (self.moe,) = self.shard(self.new())
        self.num_experts = self.moe.experts

    def make(self, name, transport):
        model = self.new()
        self.shard(model)
        self.implementations.register(
            name, lambda layer, *routed: transport(self.mlp_of(layer, self.moe.local_experts), *routed)
        )
        model.set_experts_implementation(name)
        return lambda tokens: model(tokens, use_cache=False).logits, model


def step(logits_of, model, tokens, num_all, with_gradients):
    model.zero_grad()
    with torch.set_grad_enabled(with_gradients):
        loss = torch.nn.functional.cross_entropy(
            logits_of(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].reshape(-1), reduction="sum"
        )
        loss = loss / num_all
        if with_gradients:
            loss.backward()
    return float(loss.detach())


def compare(comm, options):
    kind = (OwnModel if options.model == "own" else TinyModel)(comm, options)
    if kind.num_experts % comm.num_ranks:
        sys.exit("--experts must be a multiple of the ranks, for gloo's sake")
    transports = {
        "switchyard": Transport(functools.partial(switchyard.torch.run_experts, kind.moe)),
        "gloo": Transport(functools.partial(gloo.run_experts, kind.num_experts)),
    }
    models = {name: kind.make("bench_" + name, transport) for name, transport in transports.items()}
    num_all = comm.num_ranks * options.sequences * options.length
    times = {name: [] for name in models}
    inside = {name: [] for name in models}
    for turn in range(options.turns + WARM_UP):
        tokens = torch.randint(
            VOCABULARY,
            (options.sequences, options.length + 1),
            generator=torch.Generator().manual_seed(turn * comm.num_ranks + comm.rank),
        )
        losses = {}
        for name in sorted(transports, reverse=turn % 2 == 0):
            transport = transports[name]
            transport.seconds = 0.0
            comm.barrier()
            begin = time.perf_counter()
            losses[name] = step(*models[name], tokens, num_all, not options.forward)
            slowest = torch.tensor([time.perf_counter() - begin, transport.seconds], dtype=torch.float64)
            comm.all_reduce(slowest, "max", out=slowest)
            if turn >= WARM_UP:
                times[name].append(float(slowest[0]) * 1e3)
                inside[name].append(float(slowest[1]) * 1e3)
        assert abs(losses["switchyard"] - losses["gloo"]) < 1e-5 * losses["gloo"], losses
    return {
        "model": options.model,
        "ranks": comm.num_ranks,
        "mode": kind.moe.mode,
        "turns": options.turns,
        "tokens_a_rank": options.sequences * options.length,
        **{name + "_ms": statistics.median(values) for name, values in times.items()},
        **{name + "_inside_ms": statistics.median(values) for name, values in inside.items()},
        "speedup": statistics.median(gloo / ours for ours, gloo in zip(times["switchyard"], times["gloo"])),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=["own", "mixtral", "qwen3_moe", "deepseek_v3"], default="own")
    parser.add_argument("--sequences", type=int, default=4, help="of each rank")
    parser.add_argument("--length", type=int, default=32)
    for name, default in (("width", 64), ("inner", 128), ("layers", 2), ("experts", 8), ("topk", 2)):
        parser.add_argument("--" + name, type=int, default=default, help="of our own model")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--forward", action="store_true", help="without gradients")
    parser.add_argument("--bare", action="store_true", help="experts that do nothing")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with switchyard.init() as comm:
        gloo.join(comm)
        result = compare(comm, options)
        if comm.rank == 0:
            print(json.dumps(result) if options.json else SUMMARY % result, flush=True)
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
