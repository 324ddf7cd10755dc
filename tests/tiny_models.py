"""Tiny random models of transformers, and tokenizers of whole words."""

import pytest

# transformers and torch warn of their own futures
with_torch = pytest.mark.filterwarnings("ignore")
SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "initializer_range": 0.4,
    "attn_implementation": "eager",
    "pad_token_id": 0,
}


def build(kind="llama", dtype="float64", auto="AutoModelForCausalLM", **changes):
    """Return a random model whose heads share keys, its attention far from uniform."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(kind, **SIZES | changes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = getattr(transformers, auto).from_config(config)
    for name, x in model.named_parameters():
        if name.endswith("sinks"):
            x.data.copy_(x.new([3.0, -2.0, 0.0, 1.0]))
    return model.to(getattr(torch, dtype)).eval()


def save_tokenizer(folder, words, **options):
    """Save a tokenizer of whole words, the first of which stands for all others."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    numbered = {word: i for i, word in enumerate(words)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbered, unk_token=words[0]))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **options)
    fast.save_pretrained(folder)
