"""Heads replaced in a tiny language model, against models of transformers that do it by themselves.

They need torch and transformers, so `make lm` runs them and `make test` skips them.
"""

import json
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tiny_models import SIZES, build, save_tokenizer, with_torch

from analysis.models import substitute as module
from analysis.models.language_model import LanguageModel
from analysis.models.plan import Plan
from analysis.models.replacement import BLOCK, ERRORS, Estimated, Passage
from analysis.models.substitute import substitute
from approx import Mask, parse
from approx.method.prices import Shape

IDS = np.random.default_rng(1).integers(1, 50, 90)


def passage(model, **options):
    return Passage(LanguageModel(model, name="tiny"), IDS, **{"skip": 16, "jobs": 2} | options)


def everywhere(p, spec, heads=None):
    return p.everywhere(parse(spec), heads)


def log_shares(model):
    """Return log softmax of a model's own logits from position 16 on, in float64."""
    import torch

    with torch.inference_mode():
        logits = model(input_ids=torch.as_tensor(IDS)[None]).logits[0, 16:]
    return logits.double().log_softmax(-1).numpy()


def divergence(model, other):
    """Return KL, whether the first choice is the same, and the surprisal of what follows."""
    p, q = log_shares(model), log_shares(other)
    following = IDS[17:]
    return (
        (np.exp(p) * (p - q)).sum(axis=1),
        p.argmax(axis=1) == q.argmax(axis=1),
        -q[np.arange(len(following)), following],
    )


def agree(found, expected):
    kl, same, surprisal = expected
    assert kl.max() > 0.01  # so the test can fail
    # Norms and softmax of transformers round to float32 whatever the model's dtype. Three layers,
    # sums of at most 90 terms, logits of order 10, half of whose changes cancel in KL.
    tolerance = 10 * 3 * 90 * np.finfo(np.float32).eps
    np.testing.assert_allclose(found.kl, kl, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(found.same_top, same)
    np.testing.assert_allclose(found.surprisal, surprisal, rtol=0, atol=tolerance)


@with_torch
@pytest.mark.parametrize(("kind", "dtype"), [("gpt2", "float64"), ("llama", "float32")])
def test_exact_replacement_changes_nothing(kind, dtype):
    p = passage(build(kind, dtype))
    found = p.replace(everywhere(p, "exact()"), errors=True)
    # Three layers with sums of at most 90 terms; logits of order 10 that are off by e move KL by
    # half the variance of e, beside what its own sums of 50 terms round to in float64.
    relative = 3 * 90 * np.finfo(dtype).eps
    assert np.abs(found.kl).max() < (10 * relative) ** 2 + 50 * 10 * np.finfo(float).eps
    assert found.same_top.all()
    assert found.residual.max() < relative
    assert set(found.errors) == {(i, j) for i in range(3) for j in range(4)}
    nothing = p.replace({})
    np.testing.assert_array_equal(nothing.kl, 0.0)
    np.testing.assert_array_equal(nothing.surprisal, p.surprisal)


@with_torch
def test_window_everywhere_is_a_model_with_windows():
    llama = build()
    mistral = build("mistral", sliding_window=7)
    mistral.load_state_dict(llama.state_dict())
    p = passage(llama)
    agree(p.replace(everywhere(p, "sliding_window(width=7)")), divergence(llama, mistral))


@with_torch
@pytest.mark.parametrize("heads", [[(1, 2)], [(2, 0), (0, 3), (2, 1)]])
def test_heads_without_output_are_those_that_the_projection_drops(heads):
    torch = pytest.importorskip("torch")
    llama, cut = build(), build()
    with torch.no_grad():
        for layer, head in heads:
            columns = slice(8 * head, 8 * head + 8)
            cut.model.layers[layer].self_attn.o_proj.weight[:, columns] = 0
    p = passage(llama)
    found = p.replace(everywhere(p, "zero()", heads))
    agree(found, divergence(llama, cut))
    first = min(heads)[0]
    np.testing.assert_array_equal(found.residual[: first + 1], 0.0)
    assert (found.residual[first + 1 :] > 0.01).all()


@with_torch
def test_errors_are_of_what_a_head_gets():
    p = passage(build())
    heads = everywhere(p, "sink_window(k=6)")
    own, drifted = p.own_errors(heads), p.replace(heads, errors=True).errors
    for (layer, head), error in own.items():
        x = p.inputs(layer).at(layer, head)
        estimate = x.approximate(parse("sink_window(k=6)"))
        expected = x.compare(estimate, rows=np.arange(16, 90))  # the positions of the KL
        assert error == {name: expected[name] for name in ERRORS}
        assert (drifted[layer, head] == error) == (layer == 0)  # drift begins behind layer 0


@with_torch
def test_draws_of_a_head_do_not_depend_on_the_others():
    p = passage(build())
    one = p.own_errors({(1, 2): parse("positive(m=16)")})
    every = p.own_errors(everywhere(p, "positive(m=16)"))
    assert every[1, 2] == one[1, 2]
    assert len({error["attention_tv"] for error in every.values()}) == 12
    other = passage(build(), seed=1, jobs=1)
    assert other.own_errors({(1, 2): parse("positive(m=16)")}) != one


@with_torch
def test_a_text_with_heads_in_place():
    torch = pytest.importorskip("torch")
    p = passage(build("gpt2"))
    assert p.with_heads({}) is p
    heads = p.everywhere(parse("sink_window(k=4)"), [(0, 1), (1, 2)])
    placed, done = p.with_heads(heads), p.replace(heads)
    assert torch.equal(placed.states[-1], done.state)
    np.testing.assert_array_equal(placed.replace({}).kl, 0.0)
    more = {(2, 0): parse("sink_window(k=2)"), (1, 2): parse("exact()")}
    assert torch.equal(placed.replace(more).state, p.replace(heads | more).state)
    assert placed.digest != p.digest
    # exact heads in place have the gradients of the model, also before them
    (own,) = p.gradients([IDS[17:]])
    (exact,) = p.with_heads(p.everywhere(parse("exact()"))).gradients([IDS[17:]])
    for mine, other in zip(exact, own):
        np.testing.assert_allclose(mine, other, rtol=1e-8, atol=1e-10)
    # behind the last head that is replaced they are the slopes of the surprisal
    slope, step = [], 1e-5
    for sign in (1, -1):

        def moved(call, change=sign * step):
            output = call.output().clone()
            output[0, 70, 3, 5] += change * (call.layer == 2)
            return output

        with torch.inference_mode():
            state = p.model.states(IDS, moved, start=2, state=placed.states[2])
        slope.append(placed.compare(state)[3].sum())
    gradient = placed.gradients([IDS[17:]])[0][2][3, 70, 5]
    assert gradient == pytest.approx((slope[0] - slope[1]) / (2 * step), rel=1e-5, abs=1e-6)
    assert abs(gradient - own[2][3, 70, 5]) > 1e-3  # so the test can fail


@with_torch
def test_gradient_is_the_slope_of_the_surprisal():
    torch = pytest.importorskip("torch")
    model = build("gpt2")  # whose norms do not round to float32
    p = passage(model)
    (gradients,) = p.gradients([IDS[17:]])
    assert [g.shape for g in gradients] == [(4, 90, 8)] * 3
    step = 1e-5
    for layer, head, i, j in [(0, 1, 20, 3), (2, 3, 88, 0)]:
        sums = []
        for sign in (1, -1):

            def moved(_, given, at=(0, i, 8 * head + j), change=sign * step):
                x = given[0].clone()
                x[at] += change
                return (x,)

            projection = model.transformer.h[layer].attn.c_proj
            hook = projection.register_forward_pre_hook(moved)
            q = log_shares(model)
            hook.remove()
            sums.append(-q[np.arange(73), IDS[17:]].sum())
        slope = (sums[0] - sums[1]) / (2 * step)
        # the third derivative of the surprisal, times step², and rounding over step
        assert gradients[layer][head, i, j] == pytest.approx(slope, rel=1e-5, abs=1e-6)
    with torch.inference_mode():  # the frozen weights got no gradients
        assert all(w.grad is None for w in model.parameters())


def test_standard_error_is_made_of_blocks():
    rng = np.random.default_rng(0)
    x = rng.standard_normal(4 * BLOCK)
    found = Estimated.from_positions(x)
    means = x.reshape(4, -1).mean(axis=1)
    assert found.mean == pytest.approx(means.mean(), rel=1e-12)
    assert found.stderr == pytest.approx(means.std(ddof=1) / 2, rel=1e-12)
    assert math.isnan(Estimated.from_positions(x[: 4 * BLOCK - 1]).stderr)
    assert Estimated.from_positions(np.array([1.0, np.inf])) == (np.inf, np.inf)


def shapes(windows, n=40):
    """Return what prices follow from, of layers with windows of these widths, 0 for none."""
    masks = [Mask.window(n, n, width) if width else Mask.causal(n, n) for width in windows]
    return [Shape(n, n, 8, 8, mask) for mask in masks]


def test_bytes_are_those_of_groups_of_heads_in_every_layer():
    two = [replace(shape, group=2) for shape in shapes((0, 10))]
    p = SimpleNamespace(
        shapes=two, model=SimpleNamespace(layers=2, heads=4), prompt=0, ids=np.arange(40)
    )
    four, key = parse("sink_window(k=4)"), 2 * 16  # bytes of a key and its value
    # a new query reads 40 keys in layer 0 and 10 in layer 1, by each of two groups
    exact = (2 * 40 + 2 * 10) * key / 4
    assert module.costs(p, {})["bytes_read"] == module.costs(p, {})["exact_bytes_read"] == exact
    one = module.costs(p, {(0, 0): four, (0, 1): four})
    assert one["bytes_read"] == (4 + 40 + 2 * 10) * key / 4
    assert one["bytes_read_share"] == pytest.approx(64 / 100)
    # half of a group reads its own keys and those of its exact head
    assert module.costs(p, {(0, 0): four})["bytes_read"] == (4 + 2 * 40 + 2 * 10) * key / 4
    assert one["bytes_of_keys"] == 32 * key
    assert math.isnan(module.costs(p, {(1, 2): parse("top_p(p=0.5)")})["bytes_read"])
    # after a prompt of 20, all later keys stay beside those that were chosen
    p.prompt = 20
    once = {(0, head): parse("columns(k=8, by='key_norm')") for head in range(4)}
    assert module.costs(p, once)["bytes_read"] == (2 * (8 + 20) + 2 * 10) * key / 4
    # each head chooses its own, and all share the later ones
    once = {(0, head): parse("columns(k=8, by='snapkv', window=4)") for head in range(4)}
    assert module.costs(p, once)["bytes_read"] == (2 * (2 * 8 + 20) + 2 * 10) * key / 4


def test_templates_are_filled_and_sized_methods_stay():
    p = SimpleNamespace(shapes=shapes((0,)))
    assert module.fill_to_budget(p, parse("top_k()"), 8 * 16, "reads") == parse("top_k(k=8)")
    assert module.fill_to_budget(p, parse("top_k(k=9)"), 8 * 16, "reads") == parse("top_k(k=9)")


@pytest.fixture
def folder(tmp_path):
    """Return a saved model and a text of 90 tokens."""
    return saved(tmp_path)


def saved(tmp_path, kind="llama", **changes):
    build(kind, "float32", **changes).save_pretrained(tmp_path / "model")
    most = (SIZES | changes)["max_position_embeddings"]
    save_tokenizer(tmp_path / "model", [f"w{i}" for i in range(50)], model_max_length=most)
    (tmp_path / "text.txt").write_text(" ".join(f"w{i}" for i in IDS), encoding="utf-8")
    return tmp_path / "model", tmp_path / "text.txt"


@with_torch
def test_table_has_every_number_and_its_summary_a_row_a_run(folder):
    plan = Plan("model", {(1, 2): parse("top_k(k=4)")}, {"name": "mine"})
    how = {"budget": 8, "currency": "stored", "skip": 16, "jobs": 1, "errors": True}
    found = substitute(*folder, [parse("sliding_window()"), plan], **how)
    rows = module.by_run(found).set_index("method")
    assert rows.index.tolist() == ["sliding_window(width=8)", "mine"]
    assert rows.heads.tolist() == [12, 1]
    assert rows.oracle_heads.tolist() == [0, 1]
    assert rows.future_heads.tolist() == [0, 0]
    # of six groups of two heads one has a head of its own keys
    assert rows.bytes_read_share.tolist() == pytest.approx([8 / 90, (6 + 4 / 90) / 6])
    assert (rows.kl_median < rows.kl_99).all()
    assert (rows.kl_99 < rows.kl_largest).all()
    assert (abs(rows.surprisal_correlation) < 1).all()
    assert rows.first_position.tolist() == [16, 16]
    assert rows.kl.iloc[0] > rows.kl.iloc[1] > 0
    assert rows.exact_perplexity.nunique() == 1
    tv = found[(found.metric == "own_attention_tv") & (found.method == "mine")]
    assert tv[["layer", "head"]].to_numpy().tolist() == [[1, 2]]
    assert rows.own_attention_tv["mine"] == tv.value.iloc[0]
    last = found[(found.metric == "residual_relative_error") & (found.layer == 2)]
    assert rows.residual_relative_error.tolist() == last.value.tolist()  # behind the last layer


@with_torch
def test_by_default_rivals_and_what_decoding_runs_are_measured(folder):
    steps = []
    found = substitute(*folder, heads=[(1, 0)], setting="prompt", jobs=1)
    rows = module.by_run(found).set_index("method")
    assert (rows.future_heads == 0).all()
    assert (rows.first_position == 45).all()
    assert rows.kl["exact()"] == 0
    # of 3 layers of 2 groups one group reads 8 columns and, as every other, all that came later
    assert {"sink_window(k=32)", "columns(k=32, by='key_norm', recent=8)"} <= set(rows.index)
    p = passage(build())
    with p.watched(lambda: steps.append(1)):
        p.replace(everywhere(p, "exact()"))
        p.own_errors(everywhere(p, "exact()", [(1, 0)]))
    assert len(steps) == 3 + 1


@with_torch
def test_method_that_reads_the_future_says_so(folder):
    found = module.by_run(substitute(*folder, parse("nystrom(rank=4)"), skip=16, errors=False))
    assert found.future_heads.tolist() == [12]


@with_torch
@pytest.mark.parametrize(("choice", "options", "message"), [
    (Plan("other", {}), {}, "the plan is for the model other, and this is model"),
    (Plan("model", {(3, 0): parse("exact()")}), {}, "model has no head 3.0: its layers are"),
    (parse("exact()"), {"heads": [(0, 4)]}, "model has no head 0.4: its layers are 0 to 2"),
    (parse("taylor()"), {"budget": 8}, r"taylor\(\) has no size that costs at most 8 "),
    (parse("exact()"), {"setting": "decode"}, "setting must be one of"),
    (parse("exact()"), {"prompt_tokens": 9}, "prompt_tokens need setting='prompt'"),
    (parse("exact()"), {"setting": "prompt", "prompt_tokens": 89}, "prompt_tokens must be <= 88"),
    (parse("exact()"), {"setting": "prompt", "skip": 44}, "skip must be >= 45, got 44"),
    (parse("linformer(rank=4)"), {}, "cannot be used under a mask: "),
    (parse("exact()"), {"skip": 89}, "skip must be <= 88, got 89"),
    (parse("exact()"), {"max_tokens": 1}, "max_tokens must be >= 2"),
    ("exact()", {}, "every choice must be a method or a plan"),
])  # fmt: skip
def test_bad_choice_is_one_line(folder, choice, options, message):
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        substitute(*folder, choice if not isinstance(choice, str) else [choice], **options)
    assert "\n" not in str(caught.value)


@with_torch
def test_models_that_cannot_be_used_are_one_line(tmp_path, folder):
    model, text = folder
    config = json.loads((model / "config.json").read_text())
    for changes, message in (
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "is quantised .gptq"),
        ({"is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"model_type": "vit", "architectures": ["ViTModel"]}, "is no causal language model"),
    ):
        (model / "config.json").write_text(json.dumps(config | changes))
        with pytest.raises(ValueError, match=message) as caught:
            substitute(model, text, parse("exact()"))
        assert "\n" not in str(caught.value)
