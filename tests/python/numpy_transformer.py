"""A small mixture-of-experts transformer in NumPy, forward and backward, whose experts are in this process or spread
over ranks.

Two layers of causal attention and experts, each behind a root-mean-square norm, with residuals. Parameters are a flat
dict by name; those of experts are `layer.experts.number.name`, and a rank has only its own.
"""

import numpy

VOCABULARY, WIDTH, INNER, NUM_LAYERS, NUM_EXPERTS, TOPK = 31, 16, 24, 2, 8, 2


def make_parameters(seed=3):
    rng = numpy.random.default_rng(seed)

    def matrix(*shape):
        return (rng.normal(size=shape) / numpy.sqrt(shape[0])).astype(numpy.float32)

    parameters = {"embed": matrix(VOCABULARY, WIDTH) * 4, "out": matrix(WIDTH, VOCABULARY)}
    for layer in range(NUM_LAYERS):
        for name in ("q", "k", "v", "o"):
            parameters["%d.%s" % (layer, name)] = matrix(WIDTH, WIDTH)
        for name in ("norm1", "norm2"):
            parameters["%d.%s" % (layer, name)] = numpy.ones(WIDTH, numpy.float32)
        parameters["%d.router" % layer] = matrix(WIDTH, NUM_EXPERTS)
        for expert in range(NUM_EXPERTS):
            parameters["%d.experts.%d.up" % (layer, expert)] = matrix(WIDTH, INNER)
            parameters["%d.experts.%d.down" % (layer, expert)] = matrix(INNER, WIDTH)
    return parameters


def expert_of(name):
    """The number of the expert whose parameter this is, or None."""
    parts = name.split(".")
    return int(parts[2]) if len(parts) == 4 else None


def softmax(x):
    e = numpy.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_backward(grad, p):
    return p * (grad - (grad * p).sum(-1, keepdims=True))


def norm(x, gain):
    scale = 1 / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
    return x * scale * gain, scale


def norm_backward(grad, x, gain, scale):
    direct = grad * gain * scale
    return direct - x * scale**2 * (direct * x).mean(-1, keepdims=True), (grad * x * scale).sum((0, 1))


class LocalExperts:
    """All experts in this process; their transport is fancy indexing."""

    def forward(self, parameters, layer, x, idx, weights):
        y, saved = numpy.zeros_like(x), []
        for expert in range(NUM_EXPERTS):
            token, k = numpy.nonzero(idx == expert)
            result, hidden = expert_forward(parameters, layer, expert, x[token])
            numpy.add.at(y, token, result * weights[token, k, None])
            saved.append((expert, token, k, hidden, result))
        return y, (x, weights, saved)

    def backward(self, parameters, gradients, layer, grad_y, saved):
        x, weights, by_expert = saved
        grad_x, grad_weights = numpy.zeros_like(x), numpy.zeros_like(weights)
        for expert, token, k, hidden, result in by_expert:
            grad_weights[token, k] = (grad_y[token] * result).sum(-1)
            grad_result = grad_y[token] * weights[token, k, None]
            numpy.add.at(
                grad_x, token, expert_backward(parameters, gradients, layer, expert, x[token], hidden, grad_result)
            )
        return grad_x, grad_weights


class ShardedExperts:
    """Each expert on one rank; their transport is Switchyard."""

    def __init__(self, moe):
        self.moe = moe

    def forward(self, parameters, layer, x, idx, weights):
        recv, state = self.moe.dispatch(x, idx, weights)
        out, saved = recv.empty_like(), {}
        for expert, rows, place in recv:
            out[place], saved[expert] = expert_forward(parameters, layer, expert, rows)
        return self.moe.combine(out, state), (recv, state, out, saved)

    def backward(self, parameters, gradients, layer, grad_y, saved):
        recv, state, out, hidden = saved
        grad_out, grad_row_weights = self.moe.combine_backward(grad_y, out, state)
        grad_rows = numpy.zeros_like(grad_out)
        for expert, rows, place in recv:
            grad_rows[place] = expert_backward(
                parameters, gradients, layer, expert, rows, hidden[expert], grad_out[place]
            )
        return self.moe.dispatch_backward(grad_rows, grad_row_weights, state)


def expert_forward(parameters, layer, expert, rows):
    hidden = numpy.maximum(rows @ parameters["%d.experts.%d.up" % (layer, expert)], 0)
    return hidden @ parameters["%d.experts.%d.down" % (layer, expert)], hidden


def expert_backward(parameters, gradients, layer, expert, rows, hidden, grad):
    up, down = ("%d.experts.%d.%s" % (layer, expert, name) for name in ("up", "down"))
    gradients[down] = hidden.T @ grad
    grad_hidden = (grad @ parameters[down].T) * (hidden > 0)
    gradients[up] = rows.T @ grad_hidden
    return grad_hidden @ parameters[up].T


def loss_and_gradients(parameters, tokens, num_all, experts):
    """Of the sequences [batch, length + 1]: the next-token loss, divided by the number of predictions of all ranks, and
    its gradients.
    """
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    batch, length = inputs.shape
    mask = numpy.where(numpy.tril(numpy.ones((length, length), bool)), 0, -1e9).astype(numpy.float32)
    p, saved = parameters, []
    x = p["embed"][inputs]
    for layer in range(NUM_LAYERS):
        name = ("%d." % layer).__add__
        a, scale1 = norm(x, p[name("norm1")])
        q, k, v = (a @ p[name(part)] for part in "qkv")
        attention = softmax(q @ k.swapaxes(1, 2) / numpy.float32(numpy.sqrt(WIDTH)) + mask)
        mixed = attention @ v
        middle = x + mixed @ p[name("o")]
        b, scale2 = norm(middle, p[name("norm2")])
        probabilities = softmax(b @ p[name("router")]).reshape(-1, NUM_EXPERTS)
        idx = numpy.ascontiguousarray(numpy.argsort(-probabilities, -1, kind="stable")[:, :TOPK])
        weights = numpy.take_along_axis(probabilities, idx, -1)
        y, of_experts = experts.forward(p, layer, numpy.ascontiguousarray(b.reshape(-1, WIDTH)), idx, weights)
        saved.append((x, a, scale1, q, k, v, attention, mixed, middle, b, scale2, probabilities, idx, of_experts))
        x = middle + y.reshape(x.shape)
    predicted = softmax(x @ p["out"])
    hit = numpy.take_along_axis(predicted, targets[..., None], -1)
    loss = float(-numpy.log(hit).astype(numpy.float64).sum()) / num_all

    g = {}
    grad = predicted.copy()
    numpy.put_along_axis(grad, targets[..., None], hit - 1, -1)
    grad /= numpy.float32(num_all)
    g["out"] = numpy.einsum("blw,blv->wv", x, grad)
    grad = grad @ p["out"].T
    for layer in reversed(range(NUM_LAYERS)):
        name = ("%d." % layer).__add__
        x, a, scale1, q, k, v, attention, mixed, middle, b, scale2, probabilities, idx, of_experts = saved[layer]
        grad_b, grad_weights = experts.backward(
            p, g, layer, numpy.ascontiguousarray(grad.reshape(-1, WIDTH)), of_experts
        )
        grad_probabilities = numpy.zeros_like(probabilities)
        numpy.put_along_axis(grad_probabilities, idx, grad_weights, -1)
        grad_scores = softmax_backward(grad_probabilities, probabilities)
        g[name("router")] = b.reshape(-1, WIDTH).T @ grad_scores
        grad_b = grad_b.reshape(b.shape) + (grad_scores @ p[name("router")].T).reshape(b.shape)
        grad_middle, g[name("norm2")] = norm_backward(grad_b, middle, p[name("norm2")], scale2)
        grad = grad + grad_middle
        g[name("o")] = numpy.einsum("blw,blu->wu", mixed, grad)
        grad_mixed = grad @ p[name("o")].T
        grad_attention = softmax_backward(grad_mixed @ v.swapaxes(1, 2), attention) / numpy.float32(numpy.sqrt(WIDTH))
        parts = {
            "q": grad_attention @ k,
            "k": grad_attention.swapaxes(1, 2) @ q,
            "v": attention.swapaxes(1, 2) @ grad_mixed,
        }
        grad_a = numpy.zeros_like(a)
        for part, grad_part in parts.items():
            g[name(part)] = numpy.einsum("blw,blu->wu", a, grad_part)
            grad_a += grad_part @ p[name(part)].T
        grad_x, g[name("norm1")] = norm_backward(grad_a, x, p[name("norm1")], scale1)
        grad = grad + grad_x
    g["embed"] = numpy.zeros_like(p["embed"])
    numpy.add.at(g["embed"], inputs, grad)
    return loss, g
