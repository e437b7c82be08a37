"""A mixture-of-experts transformer over ranks, end to end: Switchyard against torch's own all-to-all (gloo), in turns,
in one job.

    PYTHONPATH=build/python build/bin/switchyard run -n 4 -- /usr/bin/python3 bench/python/ep_versus_gloo.py

Both models begin with the same parameters and see the same tokens, and their losses are compared. A step is the time
from tokens to the gradients of the slowest rank (--forward: to logits); "of which" is the time inside the layers of
experts (forward), their matrix products included. --bare leaves the products of experts out, so that their transport is
what remains of "of which".
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "python"))
import switchyard  # noqa: E402
import switchyard.torch  # noqa: E402
import torch_transformer  # noqa: E402


class AllToAll(torch.autograd.Function):
    """torch.distributed.all_to_all_single of rows; its backward is the same the other way."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.splits = sent, received
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, grad):
        sent, received = ctx.splits
        out = grad.new_empty(sum(sent), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), sent, received)
        return out, None, None


class GlooExperts(torch.nn.Module):
    """What frameworks do without a library: sort rows by expert, exchange counts, exchange rows, and all of it back."""

    def __init__(self, comm, sizes, make_expert):
        super().__init__()
        self.num_ranks, self.num_experts = comm.num_ranks, sizes.experts
        self.num_local = sizes.experts // comm.num_ranks
        first = comm.rank * self.num_local
        self.experts = torch.nn.ModuleDict({str(first + i): make_expert(first + i) for i in range(self.num_local)})

    def forward(self, x, idx, weights):
        rows, topk = x.reshape(-1, x.shape[-1]), idx.shape[-1]
        flat = idx.reshape(-1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self.num_experts).reshape(self.num_ranks, self.num_local)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        sent, received = counts.sum(1).tolist(), theirs.sum(1).tolist()
        got = AllToAll.apply(rows[order // topk], sent, received)
        # From (source, expert) to (expert, source), and back.
        parts = list(got.split(theirs.reshape(-1).tolist()))
        results = [None] * len(parts)
        for local, expert in enumerate(self.experts.values()):
            mine = parts[local :: self.num_local]
            of_expert = expert(torch.cat(mine)).split([len(part) for part in mine])
            results[local :: self.num_local] = of_expert
        back = AllToAll.apply(torch.cat(results), received, sent)
        weighed = back * weights.reshape(-1)[order, None]
        return torch.zeros_like(rows).index_add(0, order // topk, weighed).reshape(x.shape)


class Timed(torch.nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.experts = inner.experts
        self.inner = [inner]  # not a submodule: names stay as they are
        self.seconds = 0.0

    def forward(self, *args):
        begin = time.perf_counter()
        y = self.inner[0](*args)
        self.seconds += time.perf_counter() - begin
        return y


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sequences", type=int, default=4, help="of each rank")
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--inner", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--topk", type=int, default=2)
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--forward", action="store_true", help="without gradients")
    parser.add_argument("--bare", action="store_true", help="experts that do nothing")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = torch_transformer.Sizes(256, options.width, options.inner, options.layers, options.experts, options.topk)
    with switchyard.init() as comm:
        if sizes.experts % comm.num_ranks:
            sys.exit("--experts must be a multiple of the ranks, for gloo's sake")
        store = torch.zeros(256, dtype=torch.uint8)
        if comm.rank == 0:
            name = os.path.join(tempfile.mkdtemp(), "store").encode()
            store[: len(name)] = torch.tensor(list(name), dtype=torch.uint8)
        comm.broadcast(store)
        dist.init_process_group(
            "gloo",
            init_method="file://" + bytes(store.tolist()).rstrip(b"\0").decode(),
            rank=comm.rank,
            world_size=comm.num_ranks,
        )
        moe = switchyard.MoE(
            comm,
            experts=sizes.experts,
            topk=sizes.topk,
            hidden=sizes.width,
            max_tokens=options.sequences * options.length,
            training=not options.forward,
        )

        def make_expert(number):
            return torch.nn.Identity() if options.bare else torch_transformer.make_expert(sizes)

        layers = {
            "switchyard": lambda: switchyard.torch.ExpertParallel(moe, make_expert),
            "gloo": lambda: GlooExperts(comm, sizes, make_expert),
        }
        models = {
            name: torch_transformer.Transformer(lambda make=make: Timed(make()), sizes) for name, make in layers.items()
        }
        num_all = comm.num_ranks * options.sequences * options.length
        times = {name: [] for name in models}
        inside = {name: [] for name in models}
        for turn in range(options.turns + 3):
            tokens = torch.randint(
                256,
                (options.sequences, options.length + 1),
                generator=torch.Generator().manual_seed(turn * comm.num_ranks + comm.rank),
            )
            losses = []
            for name, model in models.items():
                for block in model.blocks:
                    block.experts.seconds = 0.0
                model.zero_grad()
                comm.barrier()
                begin = time.perf_counter()
                with torch.set_grad_enabled(not options.forward):
                    loss = model.loss(tokens, num_all)
                    if not options.forward:
                        loss.backward()
                slowest = torch.tensor(
                    [time.perf_counter() - begin, sum(block.experts.seconds for block in model.blocks)],
                    dtype=torch.float64,
                )
                comm.all_reduce(slowest, "max", out=slowest)
                losses.append(float(loss))
                if turn >= 3:
                    times[name].append(float(slowest[0]) * 1e3)
                    inside[name].append(float(slowest[1]) * 1e3)
            assert abs(losses[0] - losses[1]) < 1e-5 * losses[1], losses
        result = {
            "ranks": comm.num_ranks,
            "mode": moe.mode,
            "turns": options.turns,
            "tokens_a_rank": options.sequences * options.length,
            **{name + "_ms": statistics.median(values) for name, values in times.items()},
            **{name + "_inside_ms": statistics.median(values) for name, values in inside.items()},
            "speedup": statistics.median(gloo / ours for ours, gloo in zip(times["switchyard"], times["gloo"])),
        }
        if comm.rank == 0:
            print(
                json.dumps(result)
                if options.json
                else "%(ranks)d ranks, %(tokens_a_rank)d tokens each, mode %(mode)s, median of %(turns)d turns: "
                "Switchyard %(switchyard_ms).2f ms (of which %(switchyard_inside_ms).2f), "
                "gloo %(gloo_ms).2f ms (of which %(gloo_inside_ms).2f): %(speedup).2f times as fast"
                % result
            )
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
