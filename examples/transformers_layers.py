"""Causal language models of Hugging Face's transformers, as the list of layers that a pipeline is made of.

Tiny, with random weights: nothing is downloaded. For ``transformers_pipelining.py`` and ``transformers_deepspeed.py``.
"""

import random
from collections.abc import Iterator
from itertools import cycle

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

MODELS = ("llama", "gpt2")
VOCABULARY_SIZE = 128  # ASCII
WORDS = ("the", "of", "and", "to", "in", "is", "was", "for", "with", "as", "his", "on", "be", "at", "by")


class Embedding(nn.Module):
    """What each token means, and for GPT-2 where it stands."""

    def __init__(self, tokens: nn.Module, positions: nn.Module | None = None) -> None:
        super().__init__()
        self.tokens, self.positions = tokens, positions

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up."""
        hidden = self.tokens(tokens)
        if self.positions is None:
            return hidden
        return hidden + self.positions(torch.arange(tokens.size(1), device=tokens.device))


class Layer(nn.Module):
    """A decoder layer of the model, which attends causally where it gets no mask."""

    def __init__(self, layer: nn.Module, rotary: nn.Module | None = None) -> None:
        super().__init__()
        self.layer, self.rotary = layer, rotary

    def forward(self, hidden: Tensor) -> Tensor:
        """As the model calls it."""
        options = {}
        if self.rotary is not None:
            positions = torch.arange(hidden.size(1), device=hidden.device).unsqueeze(0)
            options = {"position_ids": positions, "position_embeddings": self.rotary(hidden, positions)}
        output = self.layer(hidden, **options)
        return output[0] if isinstance(output, tuple) else output


def build_layers(model: str, *, num_layers: int, hidden_size: int, seed: int) -> list[nn.Module]:
    """From tokens to logits. The weights depend on the seed alone, not on where a layer runs.

    Args:
        model: One of ``MODELS``.
        num_layers: Decoder layers.
        hidden_size: Of four heads.
        seed: Of the random weights.
    """
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCABULARY_SIZE, "hidden_size": hidden_size, "num_attention_heads": 4}
    sizes |= {"num_hidden_layers": num_layers, "tie_word_embeddings": False, "attn_implementation": "sdpa"}
    if model == "llama":
        llama = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=2 * hidden_size, num_key_value_heads=2))
        rotary = llama.model.rotary_emb
        layers = [Layer(layer, rotary) for layer in llama.model.layers]
        return [Embedding(llama.model.embed_tokens), *layers, llama.model.norm, llama.lm_head]
    no_dropout = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    gpt2 = GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout))
    layers = [Layer(layer) for layer in gpt2.transformer.h]
    return [Embedding(gpt2.transformer.wte, gpt2.transformer.wpe), *layers, gpt2.transformer.ln_f, gpt2.lm_head]


def loss_fn(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross entropy of the next tokens."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def batches(batch_size: int, *, sequence_length: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Tokens and the tokens that follow. The same text at every run, on every rank."""
    text = " ".join(random.Random(seed).choices(WORDS, k=50_000))
    sequences = torch.tensor(list(text.encode("ascii"))).unfold(0, sequence_length + 1, sequence_length)
    whole = sequences.split(batch_size)[:-1]  # the last is shorter
    return cycle((batch[:, :-1], batch[:, 1:]) for batch in whole)
