"""Language models: transformers, unrolled LSTMs and LSTMs along trees."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.tracing.workload import Workload

_MASKED = 0.15  # of the tokens, as BERT and RoBERTa train


class _Core(nn.Module):
    """Attention of queries to keys and values, written out so that each tensor can be dropped."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None) -> Tensor:
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if hidden is not None:
            scores = scores.masked_fill(hidden, -math.inf)
        scores = scores.softmax(-1)  # no name for the others: they are freed
        return self.dropout(scores) @ v


class _Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.core = _Core(dropout)
        self.heads = heads

    def forward(self, x: Tensor, hidden: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.project(x).chunk(3, -1)
        )
        found = self.core(q, k, v, hidden)
        return self.out(found.transpose(1, 2).reshape(batch, length, width))


class _Layer(nn.Module):
    """Attention, then two linear layers; normalised after each addition or before each branch."""

    def __init__(self, width: int, heads: int, dropout: float, norm_first: bool) -> None:
        super().__init__()
        self.attend = _Attention(width, heads, dropout)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def forward(self, x: Tensor, hidden: Tensor | None) -> Tensor:
        if self.norm_first:
            x = x + self.dropout(self.attend(self.norms[0](x), hidden))
            return x + self.dropout(self.feed(self.norms[1](x)))
        x = self.norms[0](x + self.dropout(self.attend(x, hidden)))
        return self.norms[1](x + self.dropout(self.feed(x)))


class _Transformer(nn.Module):
    """Token and position embeddings, layers, and scores from the transposed embedding."""

    def __init__(
        self,
        vocabulary: int,
        length: int,
        layers: list[_Layer],
        causal: bool,
        head: nn.Module | None,
    ) -> None:
        super().__init__()
        width = layers[0].attend.out.out_features
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(length, width)
        for embedding in (self.tokens, self.positions):
            nn.init.normal_(embedding.weight, std=0.02)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(layers[0].dropout.p)
        self.layers = nn.ModuleList(layers)
        self.head = head
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1) if causal else None
        self.register_buffer("hidden", hidden, persistent=False)
        self.bias = nn.Parameter(torch.zeros(vocabulary)) if head is not None else None

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight
        # Layers that normalise first leave the last normalisation to the end.
        first = self.layers[0].norm_first
        x = self.dropout(x if first else self.norm(x))
        for layer in self.layers:
            x = layer(x, self.hidden)
        x = self.norm(x) if first else x
        x = x if self.head is None else self.head(x)
        return F.linear(x, self.tokens.weight, self.bias)


def _layers(
    name: str, layers: int, width: int, heads: int, dropout: float, norm_first: bool
) -> list[_Layer]:
    if layers < 1 or width % heads:
        raise ConfigError(
            f"{name}: layers={layers}, width={width}, heads={heads}: "
            "give 1 or more layers, and a width that is a multiple of the heads"
        )
    return [_Layer(width, heads, dropout, norm_first) for _ in range(layers)]


def roberta(
    *,
    batch_size: int = 8,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    sequence_length: int = 512,
    vocabulary: int = 50265,
    dropout: float = 0.1,
) -> Workload:
    """RoBERTa-base of Liu et al., "RoBERTa: A Robustly Optimized BERT Pretraining Approach"
    (2019), on full-length sequences, trained to name masked tokens. The loss is summed over the
    15 % of the tokens that are drawn at random, and divided by how many are expected.
    """
    stack = _layers("roberta", layers, width, heads, dropout, norm_first=False)
    head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
    module = _Transformer(vocabulary, sequence_length, stack, False, head)
    shape = (batch_size, sequence_length)

    def make_batch() -> tuple[Tensor, ...]:
        tokens = torch.randint(0, vocabulary, shape)
        return tokens, torch.randint(0, vocabulary, shape), torch.rand(*shape)

    def loss(module: nn.Module, tokens: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
        return masked_loss(module(tokens), labels, draws)

    return Workload("roberta", module, make_batch, loss)


def masked_loss(scores: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
    """The cross entropy of the tokens that were masked, divided by how many are expected.

    Args:
        draws: between 0 and 1, one for each token: is it masked?
    """
    targets = labels.masked_fill(draws >= _MASKED, -100)  # cross_entropy ignores -100
    total = F.cross_entropy(scores.flatten(0, 1), targets.flatten(), reduction="sum")
    return total / (_MASKED * labels.numel())


def transformer_lm(
    *,
    batch_size: int = 8,
    layers: int = 12,
    width: int = 768,
    heads: int = 12,
    sequence_length: int = 1024,
    vocabulary: int = 50257,
    dropout: float = 0.1,
) -> Workload:
    """The decoder-only transformer of Radford et al., "Language Models are Unsupervised Multitask
    Learners" (2019), in its smallest size (GPT-2): causal attention, normalisation before each
    branch, and scores from the embedding itself.
    """
    stack = _layers("transformer_lm", layers, width, heads, dropout, norm_first=True)
    module = _Transformer(vocabulary, sequence_length, stack, True, None)
    return _language_model("transformer_lm", module, batch_size, sequence_length, vocabulary)


def _language_model(
    name: str, module: nn.Module, batch_size: int, sequence_length: int, vocabulary: int
) -> Workload:
    def make_batch() -> tuple[Tensor, ...]:
        tokens = torch.randint(0, vocabulary, (batch_size, sequence_length))
        return tokens, torch.randint(0, vocabulary, (batch_size, sequence_length))

    return Workload(name, module, make_batch, _next_token_loss)


def _next_token_loss(module: nn.Module, tokens: Tensor, following: Tensor) -> Tensor:
    return F.cross_entropy(module(tokens).flatten(0, 1), following.flatten())


class LSTMCell(nn.Module):
    """One step of an LSTM (Hochreiter and Schmidhuber, 1997) as single ATen operators, which
    torch.nn.LSTM would hide in one."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.read = nn.Linear(inputs, 4 * hidden)
        self.recur = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, c = state
        i, f, g, o = (self.read(x) + self.recur(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class UnrolledLSTM(nn.Module):
    """Embedded tokens through stacked cells, step by step; returns the last layer's outputs."""

    def __init__(
        self, vocabulary: int, width: int, hidden: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.cells = nn.ModuleList(
            LSTMCell(hidden if layer else width, hidden) for layer in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.hidden = hidden

    def forward(self, tokens: Tensor) -> list[Tensor]:
        embedded = self.dropout(self.embedding(tokens))
        zeros = embedded.new_zeros(len(tokens), self.hidden)
        states = [(zeros, zeros) for _ in self.cells]
        outputs = []
        for x in embedded.unbind(1):
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(x, states[layer])
                x = self.dropout(states[layer][0])
            outputs.append(x)
        return outputs


class _LSTMLanguageModel(nn.Module):
    def __init__(self, lstm: UnrolledLSTM, vocabulary: int) -> None:
        super().__init__()
        self.lstm = lstm
        self.head = nn.Linear(lstm.hidden, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.stack(self.lstm(tokens), 1))


def lstm_lm(
    *,
    batch_size: int = 20,
    sequence_length: int = 35,
    hidden: int = 650,
    layers: int = 2,
    dropout: float = 0.5,
    vocabulary: int = 10000,
) -> Workload:
    """The medium LSTM of Zaremba et al., "Recurrent Neural Network Regularization" (2014), on
    sequences of the Penn Treebank's size, unrolled: dropout between layers, none along time.
    """
    if layers < 1 or sequence_length < 1:
        raise ConfigError("lstm_lm: give 1 or more layers and a sequence_length of 1 or more")
    lstm = UnrolledLSTM(vocabulary, hidden, hidden, layers, dropout)
    module = _LSTMLanguageModel(lstm, vocabulary)
    return _language_model("lstm_lm", module, batch_size, sequence_length, vocabulary)


class _TreeLSTM(nn.Module):
    """A binary TreeLSTM over a complete tree; returns class scores of every node."""

    def __init__(self, vocabulary: int, width: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.leaf = nn.Linear(width, 3 * hidden)
        self.left = nn.Linear(hidden, 5 * hidden)
        self.right = nn.Linear(hidden, 5 * hidden, bias=False)
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, tokens: Tensor) -> Tensor:
        level = [self._leaf(x) for x in self.embedding(tokens).unbind(1)]
        nodes = [h for h, _ in level]
        while len(level) > 1:
            pairs = zip(level[::2], level[1::2], strict=True)
            level = [self._join(left, right) for left, right in pairs]
            nodes += [h for h, _ in level]
        return self.head(torch.stack(nodes, 1))

    def _leaf(self, x: Tensor) -> tuple[Tensor, Tensor]:
        i, o, u = self.leaf(x).chunk(3, -1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def _join(
        self, left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        gates = self.left(left[0]) + self.right(right[0])
        i, first, second, o, u = gates.chunk(5, -1)
        c = torch.sigmoid(i) * torch.tanh(u)
        c = c + torch.sigmoid(first) * left[1] + torch.sigmoid(second) * right[1]
        return torch.sigmoid(o) * torch.tanh(c), c


def tree_lstm(
    *,
    batch_size: int = 25,
    num_classes: int = 5,
    depth: int = 6,
    hidden: int = 150,
    embedding: int = 300,
    vocabulary: int = 20000,
) -> Workload:
    """The binary (2-ary) TreeLSTM of Tai et al., "Improved Semantic Representations From
    Tree-Structured Long Short-Term Memory Networks" (ACL 2015), which classifies every node. All
    trees of the batch are complete, so that one graph serves them: 2**depth leaves each.
    """
    if depth < 1:
        raise ConfigError(f"tree_lstm: depth={depth}: give 1 or more")
    module = _TreeLSTM(vocabulary, embedding, hidden, num_classes)
    leaves = 2**depth

    def make_batch() -> tuple[Tensor, ...]:
        tokens = torch.randint(0, vocabulary, (batch_size, leaves))
        return tokens, torch.randint(0, num_classes, (batch_size, 2 * leaves - 1))

    return Workload("tree_lstm", module, make_batch, _next_token_loss)
