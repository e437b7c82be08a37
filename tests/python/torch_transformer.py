"""The transformer of numpy_transformer.py in torch, whose layers of experts are given."""
import numpy
import torch

from numpy_transformer import INNER, NUM_EXPERTS, NUM_LAYERS, TOPK, VOCABULARY, WIDTH


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * self.gain


def make_expert(number):
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, INNER, bias=False), torch.nn.ReLU(), torch.nn.Linear(INNER, WIDTH, bias=False))


class LocalExperts(torch.nn.Module):
    """All experts in this process."""

    def __init__(self):
        super().__init__()
        self.experts = torch.nn.ModuleDict({str(number): make_expert(number) for number in range(NUM_EXPERTS)})

    def forward(self, x, idx, weights):
        rows, idx, weights = x.reshape(-1, WIDTH), idx.reshape(-1, TOPK), weights.reshape(-1, TOPK)
        y = torch.zeros_like(rows)
        for number, expert in self.experts.items():
            token, k = (idx == int(number)).nonzero(as_tuple=True)
            y = y.index_add(0, token, expert(rows[token]) * weights[token, k, None])
        return y.reshape(x.shape)


class Block(torch.nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.q, self.k, self.v, self.o = (torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.norm1, self.norm2 = Norm(), Norm()
        self.router = torch.nn.Linear(WIDTH, NUM_EXPERTS, bias=False)
        self.experts = experts

    def forward(self, x):
        a = self.norm1(x)
        scores = self.q(a) @ self.k(a).transpose(1, 2) / WIDTH**0.5
        mask = torch.full(scores.shape[1:], -1e9).triu(1)
        x = x + self.o(torch.softmax(scores + mask, -1) @ self.v(a))
        b = self.norm2(x)
        weights, idx = torch.softmax(self.router(b), -1).topk(TOPK)
        return x + self.experts(b, idx, weights)


class Transformer(torch.nn.Module):
    def __init__(self, make_experts):
        super().__init__()
        self.embed = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block(make_experts()) for _ in range(NUM_LAYERS)))
        self.out = torch.nn.Linear(WIDTH, VOCABULARY, bias=False)
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
        return torch.nn.functional.cross_entropy(predicted.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1), reduction="sum") / num_all
