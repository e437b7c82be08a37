"""The transformer of numpy_transformer.py in torch, of any size, whose layers of experts are given."""

import dataclasses

import numpy
import torch

import numpy_transformer


@dataclasses.dataclass(frozen=True)
class Sizes:
    vocabulary: int = numpy_transformer.VOCABULARY
    width: int = numpy_transformer.WIDTH
    inner: int = numpy_transformer.INNER
    layers: int = numpy_transformer.NUM_LAYERS
    experts: int = numpy_transformer.NUM_EXPERTS
    topk: int = numpy_transformer.TOPK


class Norm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.gain


def make_expert(sizes):
    return torch.nn.Sequential(
        torch.nn.Linear(sizes.width, sizes.inner, bias=False),
        torch.nn.ReLU(),
        torch.nn.Linear(sizes.inner, sizes.width, bias=False),
    )


class LocalExperts(torch.nn.Module):
    """All experts in this process."""

    def __init__(self, sizes):
        super().__init__()
        self.experts = torch.nn.ModuleDict({str(number): make_expert(sizes) for number in range(sizes.experts)})

    def forward(self, x, idx, weights):
        rows, idx, weights = (
            x.reshape(-1, x.shape[-1]),
            idx.reshape(-1, idx.shape[-1]),
            weights.reshape(-1, idx.shape[-1]),
        )
        y = torch.zeros_like(rows)
        for number, expert in self.experts.items():
            token, k = (idx == int(number)).nonzero(as_tuple=True)
            y = y.index_add(0, token, expert(rows[token]) * weights[token, k, None])
        return y.reshape(x.shape)


class Block(torch.nn.Module):
    def __init__(self, sizes, experts):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(sizes.width, sizes.width, bias=False) for _ in range(4))
        self.norm1, self.norm2 = Norm(sizes.width), Norm(sizes.width)
        self.router = torch.nn.Linear(sizes.width, sizes.experts, bias=False)
        self.experts = experts
        self.topk = sizes.topk

    def forward(self, x):
        a = self.norm1(x)
        scores = self.q(a) @ self.k(a).transpose(1, 2) / x.shape[-1] ** 0.5
        mask = torch.full(scores.shape[1:], -1e9).triu(1)
        x = x + self.o(torch.softmax(scores + mask, -1) @ self.v(a))
        b = self.norm2(x)
        weights, idx = torch.softmax(self.router(b), -1).topk(self.topk)
        return x + self.experts(b, idx, weights)


class Transformer(torch.nn.Module):
    def __init__(self, make_experts, sizes=Sizes()):
        super().__init__()
        self.embed = torch.nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = torch.nn.Sequential(*(Block(sizes, make_experts()) for _ in range(sizes.layers)))
        self.out = torch.nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        # By name, so that sharded and unsharded models begin alike.
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if "gain" not in name:
                    rng = numpy.random.default_rng(list(name.encode()))
                    scale = 1.0 if name == "embed.weight" else parameter.shape[-1] ** -0.5
                    parameter.copy_(torch.from_numpy(rng.normal(size=tuple(parameter.shape)) * scale))

    def loss(self, tokens, num_all):
        """Next-token loss of [batch, length + 1], divided by the number of predictions of all ranks."""
        predicted = self.out(self.blocks(self.embed(tokens[:, :-1])))
        return (
            torch.nn.functional.cross_entropy(predicted.flatten(0, 1), tokens[:, 1:].reshape(-1), reduction="sum")
            / num_all
        )
