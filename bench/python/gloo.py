"""Experts over ranks with nothing but torch: what frameworks do without a library."""

import os
import tempfile

import torch
import torch.distributed as dist


def join(comm):
    """Collective. torch's default process group, of the ranks of a communicator."""
    name = torch.zeros(256, dtype=torch.uint8)
    if comm.rank == 0:
        path = os.path.join(tempfile.mkdtemp(), "store").encode()
        name[: len(path)] = torch.tensor(list(path), dtype=torch.uint8)
    comm.broadcast(name)
    path = bytes(name.tolist()).rstrip(b"\0").decode()
    dist.init_process_group("gloo", init_method="file://" + path, rank=comm.rank, world_size=comm.num_ranks)


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


def run_experts(num_experts, expert, x, idx, weights):
    """As switchyard.torch.run_experts: sort rows by expert, exchange counts, exchange rows, and all of it back."""
    num_ranks = dist.get_world_size()
    num_local = num_experts // num_ranks
    first = dist.get_rank() * num_local
    rows, topk = x.reshape(-1, x.shape[-1]), idx.shape[-1]
    flat = idx.reshape(-1)
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=num_experts).reshape(num_ranks, num_local)
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    sent, received = counts.sum(1).tolist(), theirs.sum(1).tolist()
    got = AllToAll.apply(rows[order // topk], sent, received)
    # From (source, expert) to (expert, source), and back.
    parts = list(got.split(theirs.reshape(-1).tolist()))
    results = [None] * len(parts)
    for local in range(num_local):
        mine = parts[local::num_local]
        results[local::num_local] = expert(first + local, torch.cat(mine)).split([len(part) for part in mine])
    back = AllToAll.apply(torch.cat(results), received, sent)
    weighed = back * weights.reshape(-1)[order, None]
    return torch.zeros_like(rows).index_add(0, order // topk, weighed).reshape(x.shape)
