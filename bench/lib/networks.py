"""Networks of the usual kinds with random weights, the same at each start. Nothing is downloaded.

A step of each is a call that may be recorded in a CUDA graph: all changes (of weights, caches, counters) are in
place and on the device.
"""

import torch
import torchvision
from torch import nn
from torch.nn import functional

SEED = 1


def resnet50(dtype=torch.half):
    """ResNet-50 for inference, channels last."""
    torch.manual_seed(SEED)
    net = torchvision.models.resnet50(weights=None).eval()
    return net.to("cuda", dtype, memory_format=torch.channels_last)


def images(count, dtype=torch.half):
    """A batch on the host, pinned."""
    generator = torch.Generator().manual_seed(SEED)
    batch = torch.randn(count, 3, 224, 224, generator=generator).to(dtype, memory_format=torch.channels_last)
    return batch.pin_memory()


class Layer(nn.Module):
    """Of a decoder: attention over the keys and values of all tokens so far, then the perceptron."""

    def __init__(self, width, heads, context):
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.queries_keys_values, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(1, heads, context, width // heads))

    def forward(self, x, place, visible):
        batch, tokens, width = x.shape
        parts = self.queries_keys_values(self.before_attention(x)).view(batch, tokens, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        self.keys.index_copy_(2, place, key)
        self.values.index_copy_(2, place, value)
        seen = functional.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=visible)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.perceptron(self.before_perceptron(x))


class Decoder(nn.Module):
    """GPT-2's shape: a token in, the likeliest next token out. The network sees the last `context` tokens."""

    def __init__(self, layers=12, width=768, heads=12, context=256, words=50257):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads, context) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.register_buffer("columns", torch.arange(context))
        self.register_buffer("count", torch.zeros(1, dtype=torch.long))
        self.register_buffer("token", torch.zeros(1, 1, dtype=torch.long))
        self.register_buffer("scores", torch.zeros(1, words))

    @classmethod
    def made(cls, dtype=torch.half, **shape):
        torch.manual_seed(SEED)
        return cls(**shape).eval().to("cuda", dtype)

    @torch.no_grad()
    def step(self):
        place = self.count % len(self.columns)
        x = self.words(self.token) + self.places(place)
        visible = (self.columns <= self.count).view(1, 1, 1, -1)
        for layer in self.layers:
            x = layer(x, place, visible)
        self.scores.copy_(functional.linear(self.last(x)[:, -1], self.words.weight))
        self.token.copy_(self.scores.argmax(-1, keepdim=True))
        self.count += 1


class Training:
    """Steps of a transformer encoder: mixed precision, fused AdamW."""

    def __init__(self, layers=6, width=512, heads=8, batch=8, length=128):
        torch.manual_seed(SEED)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.net = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
        self.input, self.target = torch.randn(2, batch, length, width).cuda()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-3, fused=True)
        self.loss = None

    def step(self):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            self.loss = functional.mse_loss(self.net(self.input).float(), self.target)
        self.loss.backward()
        self.optimizer.step()


def graph_of(step, before=3):
    """The step as a CUDA graph; first runs the step `before` times."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(before):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph
