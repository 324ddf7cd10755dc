"""Models that run a plan token by token, against the same model with its heads replaced in prefill.

They need torch and transformers, so `make lm` runs them and `make test` skips them.
"""

import functools
import json
import os

import numpy as np
import pytest
from refusals import refuses
from test_substitute import saved
from tiny_models import build, with_torch

from analysis.models import attach, detach, generate, generation
from analysis.models.attention_hook import cache_name
from analysis.models.checkpoints import Place
from analysis.models.cost_curves import METHODS
from analysis.models.head_caches import HeadCaches
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan, misfits
from analysis.models.replacement import Passage
from analysis.models.substitute import substitute
from approx import parse
from approx.method.filling import resized

N, PROMPT = 70, 44
IDS = np.random.default_rng(5).integers(1, 50, N)
SIZED = {
    "sink_window()": 12,
    "columns(by='h2o', recent=16)": 20,
    "hierarchical(basis='mean', sinks=1)": 2,
    "hierarchical(basis='pivots', sinks=1)": 2,
}
FURTHER = (
    "exact()",
    "pages(k=16, size=8)",
    "quantised(bits=2, by='channel', group=8)",
    "quantised(bits=3)",
    "qjl(m=32)",
    "turboquant(bits=3)",
    "eden(bits=2, rotation='hadamard')",
)


def sized(spec):
    method = parse(spec)
    size = SIZED.get(spec, 12)
    return resized(method, max(size, method.sized_by.least)) if method.is_template else method


def runnable(kind):
    """Return the methods of `plan`, those in few bits, and of a Llama linear attention, too."""
    narrow = [spec for spec in METHODS if "r=16" not in spec]  # heads have 8 channels
    more = ("performer(m=32)",) if kind == "llama" else ()
    return [str(sized(spec)) for spec in (*narrow, *FURTHER, *more)]


def small(kind, **changes):
    if kind == "gpt_oss":
        changes = {
            "num_local_experts": 2, "num_experts_per_tok": 1, "num_hidden_layers": 2,
            "sliding_window": 16, "experts_implementation": "eager",  # others know no float64
        } | {"layer_types": ["sliding_attention", "full_attention"]} | changes  # fmt: skip
    if kind == "mistral":
        changes |= {"sliding_window": 21}
    return build(kind, **changes)


def stepped(model, choice, prompt, heads=None, **options):
    """Return the logits of every position, from a prompt and then token by token."""
    torch = pytest.importorskip("torch")
    from transformers import DynamicCache

    attach(model, choice, heads=heads, **options)
    cache, found = DynamicCache(config=model.config), []
    past = {cache_name(model): cache}
    with torch.inference_mode():
        for ids in (IDS[:prompt], *IDS[prompt:, None]):
            out = model(torch.as_tensor(ids)[None], use_cache=True, **past)
            found.append(out.logits[0].double().numpy())
    detach(model)
    return np.concatenate(found), cache


def whole(model, heads, **options):
    """Return the logits of every position with heads replaced on the whole text."""
    passage = Passage(LanguageModel(model, name="tiny"), IDS, jobs=1, **{"skip": 0} | options)
    state = passage.replace(heads).state
    return passage.model.logits(IDS, state, np.arange(N)).double().numpy()


def everywhere(model, spec):
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    return {(i, j): parse(spec) for i in range(layers) for j in range(heads)}


@with_torch
@pytest.mark.parametrize("kind", ["llama", "mistral", "gpt_oss"])
def test_after_a_prompt_decoding_gives_the_logits_of_replacement(kind):
    model = small(kind)
    once = "columns(k=9, by='snapkv', recent=2, window=8)", "columns(k=9, by='key_norm')"
    for spec in (*runnable(kind), *once):
        heads = everywhere(model, spec)
        expected = whole(model, heads, skip=PROMPT, setting="prompt", prompt_tokens=PROMPT)
        # the prompt ends with the first pass, or earlier
        for first, more in ((PROMPT, {}), (PROMPT + 5, {"prompt_tokens": PROMPT})):
            found, _ = stepped(model, Plan("tiny", heads), first, setting="prompt", **more)
            assert apart(found[PROMPT:], expected[PROMPT:]) < TOLERANCE, spec
            assert apart(found[:PROMPT], whole(model, {})[:PROMPT]) < TOLERANCE


TOLERANCE = 3 * 90 * np.finfo(np.float32).eps  # norms of three layers round to float32


def apart(a, b):
    return float(np.abs(a - b).max() / np.abs(b).max())


@with_torch
@pytest.mark.parametrize(
    ("kind", "prompt"), [("llama", 1), ("llama", PROMPT), ("mistral", PROMPT), ("gpt_oss", PROMPT)]
)
def test_decoding_gives_the_logits_of_prefill(kind, prompt):
    model = small(kind)
    exact = whole(model, {})
    for spec in runnable(kind):
        heads = everywhere(model, spec)
        expected = whole(model, heads)
        found, _ = stepped(model, Plan("tiny", heads), prompt)
        assert spec == "exact()" or apart(expected, exact) > 100 * TOLERANCE
        assert apart(found, expected) < TOLERANCE, spec
    again = stepped(model, Plan("tiny", {}), prompt)[0]
    assert apart(again, exact) < TOLERANCE


MIXED = {
    (0, 0): "sink_window(k=12)",
    (0, 1): "sink_window(k=12)",
    (0, 3): "h2o(k=20)",
    (1, 0): "projected_top_k(k=9, r=2, by='channels')",
    (1, 1): "projected_top_k(k=5, r=4, by='channels')",
    (1, 3): "quantised(bits=4)",
}


@with_torch
def test_what_a_layer_holds_is_counted_once_for_a_group_and_is_its_price():
    model = small("llama")
    plan = Plan("tiny", {pair: parse(spec) for pair, spec in MIXED.items()})
    _, cache = stepped(model, plan, PROMPT)
    first, second, third = cache.layers
    width, both = 8, 16
    # a pair of heads shares a window; the other pair has one exact head, and one with sums
    assert first.rows[0].storage == (12 * both + N * both + 20 * (both + 1), 0)
    assert first.numbers()["bytes_read"] == 2 * (12 * both + N * both + 20 * (both + 1))
    # all keys of a pair once; the other pair has one exact head, and codes with two scales
    coded = N * width + 2 * N
    assert second.rows[0].storage == (2 * N * both + coded, N * width * 4 // 8)
    prices = [parse(MIXED[1, j]).price(n=N, l=N, d=width, mask="causal") for j in (0, 1, 3)]
    read = sum(price.bytes_read for price in prices)
    assert second.numbers()["bytes_read"] == read + 2 * N * both
    assert second.numbers()["exact_bytes"] == 2 * 2 * N * both
    assert third.keys.shape == (1, 2, N, width)  # no method there: the model's own cache


def test_heads_that_share_keys_share_random_codes_and_sums():
    methods = [parse(name) for name in ("qjl(m=8)", "positive(m=4)") for _ in range(2)]
    given = {"window": 0, "seed": np.random.SeedSequence, "dtype": np.dtype(float)}
    caches = HeadCaches(methods, 2, 8, 8, **given).caches
    assert caches[0] is caches[1] is not caches[2] is caches[3]


@with_torch
def test_rows_of_a_padded_batch_are_those_of_each_text():
    torch = pytest.importorskip("torch")

    model = small("llama")
    plan = Plan("tiny", {pair: parse(spec) for pair, spec in MIXED.items()})
    texts = IDS[:30], IDS[7:40]
    alone = []
    attach(model, plan)
    for ids in texts:
        out = model.generate(torch.as_tensor(ids)[None], max_new_tokens=6, do_sample=False)
        alone.append(out[0, -6:].tolist())
    width = max(map(len, texts))
    ids = torch.zeros(2, width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i, text in enumerate(texts):
        ids[i, width - len(text) :], mask[i, width - len(text) :] = torch.as_tensor(text), 1
    out = model.generate(ids, attention_mask=mask, max_new_tokens=6, do_sample=False)
    assert out[:, -6:].tolist() == alone
    refuses("have other lengths: give the attention_mask", model, ids)
    with pytest.raises(ValueError, match=r"beam search .* num_beams=1, or detach the plan"):
        model.generate(ids[1:], max_new_tokens=3, num_beams=2)
    with pytest.raises(ValueError, match="needs an empty DynamicCache: detach it"):
        model.generate(ids[1:], max_new_tokens=3, cache_implementation="static")


@with_torch
def test_the_cache_of_a_pass_is_known_by_every_name_and_by_its_place(monkeypatch):
    torch = pytest.importorskip("torch")
    from transformers import DynamicCache, __version__

    model, ids = small("llama"), torch.as_tensor(IDS)[None]
    own = model.generate(ids, max_new_tokens=4, do_sample=False)
    attach(model, parse("exact()"))
    assert torch.equal(model.generate(ids, max_new_tokens=4, do_sample=False), own)

    def passed_on(*args, **named):
        return type(model).forward(model, *args, **named)

    with torch.inference_mode(), monkeypatch.context() as patch:
        expected = model(ids).logits[0, -1].numpy()
        for name in (None, "past_key_values", cache_name(model)):
            cache = DynamicCache(config=model.config)
            place, named = ((), {name: cache}) if name else ((None, None, cache), {})
            for some in (ids[:, :-1], ids[:, -1:]):
                found = model(some, *place, use_cache=True, **named).logits[0, -1].numpy()
            assert apart(found, expected) < TOLERANCE
        patch.setattr(model, "forward", passed_on)  # whose signature names no argument
        assert apart(model(ids).logits[0, -1].numpy(), expected) < TOLERANCE
    monkeypatch.setattr(generation, "CACHE_NAMES", ())  # as if it had one more name
    with pytest.raises(ValueError, match=f"of transformers {__version__} does not attend as exact"):
        attach(model, parse("exact()"))
    detach(model)  # the plan before, which stayed
    assert torch.equal(model.generate(ids, max_new_tokens=4, do_sample=False), own)


@with_torch
def test_detached_model_is_as_before():
    torch = pytest.importorskip("torch")

    model, ids = small("llama"), torch.as_tensor(IDS)[None]
    with torch.inference_mode():
        before = model(ids).logits
        attach(model, parse("sink_window(k=4)"))
        attach(model, parse("sink_window(k=5)"), heads=[(2, 3)])  # in place of the first
        with_plan = model(ids).logits
        detach(model)
        after = model(ids).logits
    assert torch.equal(before, after)
    assert not torch.allclose(before, with_plan)
    assert model.config._attn_implementation == "eager"
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    refuses("no plan is attached", detach, model)


@with_torch
def test_generate_says_what_the_model_says_and_compares(tmp_path):
    model, text = saved(tmp_path)
    prompt = text.read_text()
    same = generate(model, prompt, parse("exact()"), tokens=5, compare=True)
    assert (same.tokens, same.text) == (same.exact.tokens, same.exact.text)
    assert (same.parts_at, same.agreement) == (None, 1.0)
    assert same.layers["bytes"].tolist() == same.layers.exact_bytes.tolist()
    other = generate(model, prompt, parse("sink_window(k=2)"), tokens=8, compare=True)
    assert other.agreement < 1
    first = other.parts_at
    assert other.tokens[:first] == other.exact.tokens[:first]
    assert other.tokens[first] != other.exact.tokens[first]
    assert (other.layers.bytes_read == 2 * 2 * 2 * 16).all()  # by two groups of two heads
    tokens = 90 + len(other.tokens) - 1
    assert (other.layers.exact_bytes_read == 2 * 2 * tokens * 16).all()


@with_torch
def test_a_prompt_in_the_chat_template_is_its_text_with_no_token_twice(tmp_path):
    folder, _ = saved(tmp_path)
    transformers = pytest.importorskip("transformers")
    processors = pytest.importorskip("tokenizers").processors
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    method = parse("exact()")
    refuses("model has no chat template: leave out chat", generate, folder, "w5", method, chat=True)
    first = processors.TemplateProcessing(single="w9 $A", special_tokens=[("w9", 9)])
    tokenizer.backend_tokenizer.post_processor = first
    tokenizer.chat_template = "w9 w1 {{ messages[0]['content'] }} w2"
    tokenizer.save_pretrained(folder)
    chat = generate(folder, "w5 w6", method, tokens=4, chat=True)
    plain = generate(folder, "w1 w5 w6 w2", method, tokens=4)  # behind w9, as any text
    assert (chat.prompt_tokens, chat.tokens) == (5, plain.tokens)
    said = "max_tokens would cut the end of the chat template"
    refuses(said, generate, folder, "w5 w6", method, chat=True, max_tokens=9)
    tokenizer.chat_template = "{{ raise_exception('one\nmore') }}"
    tokenizer.save_pretrained(folder)
    said = "the chat template of model fails: one more"
    refuses(said, generate, folder, "w5 w6", method, chat=True)


@with_torch
@pytest.mark.parametrize(("choice", "options", "message"), [
    (Plan("other.Q4_1", {}), {}, "the plan is for the model other.Q4_1, and this is model"),
    (Plan("model", {(3, 0): parse("exact()")}), {}, "has no head 3.0: its layers are 0 to 2"),
    (parse("nystrom(rank=4)"), {}, "no model can run nystrom.*: reads tokens that the mask"),
    (parse("top_k(k=4)"), {}, "no model can run top_k.*: needs all logits"),
    (parse("sink_window()"), {}, "is a template"),
    (parse("snapkv(k=64)"), {}, "has no cache|no model can run"),
    (parse("exact()"), {"tokens": 0}, "tokens must be >= 1"),
    (Plan("model", {}), {"heads": [(0, 0)]}, "a plan names its own heads"),
])  # fmt: skip
def test_what_cannot_run_is_one_line(tmp_path, choice, options, message):
    model, _ = saved(tmp_path)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        generate(model, "w1 w2 w3", choice, **options)
    assert "\n" not in str(caught.value)


MLA = {
    "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8,
    "n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip


@with_torch
@pytest.mark.parametrize(("kind", "changes", "message"), [
    ("gemma2", {"attn_logit_softcapping": 50.0}, "a soft-cap on the logits"),
    ("deepseek_v3", MLA, "multi-head latent attention"),
    ("bloom", {}, r"does not call its attention .*ALiBi"),
    ("falcon_mamba", {}, "of the kind falcon_mamba has no attention heads"),
])  # fmt: skip
def test_models_that_no_plan_fits_are_refused_by_whoever_would_run_one(
    kind, changes, message, tmp_path
):
    model, method = build(kind, "float32", **changes), parse("sink_window(k=4)")
    if kind == "falcon_mamba":
        del model.config.num_attention_heads  # which `build` gives to every kind
    refuses(message, attach, model, method)
    refuses(message, lambda: Passage(LanguageModel(model), IDS, skip=0))
    if kind != "bloom":  # what a configuration says is said before the weights are read
        model.config.save_pretrained(tmp_path)
        for asked in (LanguageModel.open, functools.partial(misfits, Plan("model", {}))):
            refuses(message, asked, tmp_path)


@with_torch
def test_plan_that_fits_no_model_says_why(tmp_path):
    model, _ = saved(tmp_path)
    digests = Place.from_path(model).digests()
    heads = {(1, 2): parse("sink_window(k=4)")}
    for name in ("model", "model.Q4_K_M"):  # a GGUF file of it, and the folder
        assert misfits(Plan(name, heads, {"model_sha256": digests}), model) == []
    wrong = dict.fromkeys(digests, "0")
    heads |= {(3, 0): parse("top_k(k=4)"), (0, 0): parse("snapkv(k=64)")}
    name, weights, lacks, future, none = misfits(Plan("x", heads, {"model_sha256": wrong}), model)
    assert name == "the plan is for the model x, and this is model: make a plan for this one"
    assert weights.startswith("the weights in model.safetensors are not those")
    assert lacks == "the model lacks 1 of its heads, the first is 3.0"
    assert {"top_k(k=4)" in one for one in (future, none)} == {True, False}


@with_torch
def test_a_plan_is_for_the_weights_that_an_index_names(tmp_path, monkeypatch):
    folder, text = saved(tmp_path)
    transformers = pytest.importorskip("transformers")
    model = LanguageModel.open(folder).model
    model.save_pretrained(folder / "parts", max_shard_size="20KB")
    (folder / "model.safetensors").unlink()
    index = json.loads((folder / "parts/model.safetensors.index.json").read_text("utf-8"))
    index["weight_map"] = {name: f"parts/{x}" for name, x in index["weight_map"].items()}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    digests = Place.from_path(folder).digests()
    assert sorted(digests) == sorted({*index["weight_map"].values()})
    assert len(digests) > 1
    under = {f"was/{name}": value for name, value in digests.items()}  # content counts, not names
    plan = Plan("model", {(1, 2): parse("sink_window(k=4)")}, {"model_sha256": under})
    own = transformers.AutoModelForCausalLM.from_pretrained(folder)
    runs = (
        lambda: generate(folder, "w1 w2", plan, tokens=1),
        lambda: substitute(folder, text, plan, skip=60, errors=False),
        lambda: attach(own, plan),
        lambda: attach(own, plan, name="model"),
    )
    for run in runs:
        run()
    assert misfits(plan, folder) == misfits(Plan("model", {}), folder) == []
    with (folder / (last := max(digests))).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\7")
    said = f"the weights in {last} are not those that the plan was made for"
    assert misfits(plan, folder) == misfits(Plan("model", {}, plan.facts), folder) == [said]
    for run in runs:
        refuses(f"{said}: make a plan for this model", run)
    monkeypatch.chdir(folder)
    own.name_or_path = ""  # no folder, also not the current one
    attach(own, plan)
