#!/usr/bin/python3
"""Writes small GGUF files with one odd thing each, as converters and finetunes in the wild make them, and computes
what a correct engine gives for them: a float64 forward pass of qwen3 and qwen3moe. tests/cli/odd_files_test.cpp runs
weir on them. Needs numpy.

  odd_gguf.py --list               the cases, what is odd, what is right
  odd_gguf.py CASE OUT.gguf        writes one
  odd_gguf.py --all FOLDER         writes all of them, as FOLDER/CASE.gguf, and the text as FOLDER/text.txt
  odd_gguf.py --text OUT.txt       the text that perplexities are taken on (weir perplexity -c 64 --chunks 4)
  odd_gguf.py --perplexity CASE    of that text, by the forward pass; it knows biases, no rope scaling but linear
"""
import os
import re
import struct
import sys

import numpy as np

# GGUF value types; an array is the pair (ARRAY, type of its elements).
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
FORMATS = {U32: "I", I32: "i", F32: "f", BOOL: "?"}
TENSOR_F32 = 0
ALIGNMENT = 32

TEXT = ("the inner man ran 12 times in another thin river and then returned" + ". ") * 60
WINDOW, WINDOWS = 64, 4  # of the perplexities
MERGES = ["t h", "i n", "e r", "a n"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def packed_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def packed_values(kind, values):
    if kind == STRING:
        return b"".join(packed_string(v) for v in values)
    return struct.pack("<%d%s" % (len(values), FORMATS[kind]), *values)


def packed_entry(key, kind, value):
    if isinstance(kind, tuple):
        element = kind[1]
        head = struct.pack("<IIQ", ARRAY, element, len(value))
        return packed_string(key) + head + packed_values(element, value)
    return packed_string(key) + struct.pack("<I", kind) + packed_values(kind, [value])


def padded(data):
    return data + b"\0" * (-len(data) % ALIGNMENT)


def write_gguf(path, metadata, tensors):
    """metadata: {key: (kind, value)}; tensors: {name: float32 array, [out, in] in C order}."""
    infos, blobs, offset = b"", [], 0
    for name, array in tensors.items():
        blob = padded(array.tobytes())
        dims = array.shape[::-1]
        infos += packed_string(name) + struct.pack("<I%dQ" % len(dims), len(dims), *dims)
        infos += struct.pack("<IQ", TENSOR_F32, offset)
        blobs.append(blob)
        offset += len(blob)
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    header += b"".join(packed_entry(key, *value) for key, value in metadata.items())
    with open(path, "wb") as out:
        out.write(padded(header + infos))
        out.writelines(blobs)


def byte_alphabet():
    """The characters that stand for the bytes 0 to 255 in byte-level BPE."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


class Model:
    """A random model: tensors (float32, in the file's order) and metadata, to be changed before it is saved."""

    def __init__(self, arch="qwen3moe", layers=2, hidden=64, heads=4, kv_heads=2, head_dim=32, experts=8, used=2,
                 ff=64, vocab=None, seed=1):
        self.arch, self.layers, self.hidden, self.ff = arch, layers, hidden, ff
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.experts, self.used = experts, used
        self.base, self.eps = 1e4, 1e-6
        self.words = byte_alphabet() + [merge.replace(" ", "") for merge in MERGES] + SPECIALS
        self.vocab = vocab or len(self.words)
        self.random = np.random.default_rng(seed)
        self.tensors = {}
        self.make_tensors()
        self.metadata = {**self.shape_keys(), **self.tokenizer_keys()}

    def matrix(self, *shape):
        return (self.random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    def norm(self, n, mean=1.0):
        return (mean + 0.1 * self.random.standard_normal(n)).astype(np.float32)

    def make_tensors(self):
        t, q, kv = self.tensors, self.heads * self.head_dim, self.kv_heads * self.head_dim
        t["token_embd.weight"] = self.random.standard_normal((self.vocab, self.hidden)).astype(np.float32)
        t["output_norm.weight"] = self.norm(self.hidden)
        t["output.weight"] = self.matrix(self.vocab, self.hidden) * 3
        for layer in range(self.layers):
            p = "blk.%d." % layer
            t[p + "attn_norm.weight"] = self.norm(self.hidden)
            t[p + "attn_q.weight"] = self.matrix(q, self.hidden)
            t[p + "attn_k.weight"] = self.matrix(kv, self.hidden)
            t[p + "attn_v.weight"] = self.matrix(kv, self.hidden)
            t[p + "attn_output.weight"] = self.matrix(self.hidden, q)
            t[p + "attn_q_norm.weight"] = self.norm(self.head_dim, 1.5)
            t[p + "attn_k_norm.weight"] = self.norm(self.head_dim, 1.5)
            t[p + "ffn_norm.weight"] = self.norm(self.hidden)
            if self.arch == "qwen3moe":
                t[p + "ffn_gate_inp.weight"] = self.matrix(self.experts, self.hidden) * 2
                t[p + "ffn_gate_exps.weight"] = self.matrix(self.experts, self.ff, self.hidden)
                t[p + "ffn_up_exps.weight"] = self.matrix(self.experts, self.ff, self.hidden)
                t[p + "ffn_down_exps.weight"] = self.matrix(self.experts, self.hidden, self.ff)
            else:
                t[p + "ffn_gate.weight"] = self.matrix(self.ff, self.hidden)
                t[p + "ffn_up.weight"] = self.matrix(self.ff, self.hidden)
                t[p + "ffn_down.weight"] = self.matrix(self.hidden, self.ff)

    def shape_keys(self):
        sparse = self.arch == "qwen3moe"
        keys = {
            "block_count": (U32, self.layers),
            "context_length": (U32, 512),
            "embedding_length": (U32, self.hidden),
            "feed_forward_length": (U32, self.ff * self.used if sparse else self.ff),
            "attention.head_count": (U32, self.heads),
            "attention.head_count_kv": (U32, self.kv_heads),
            "attention.key_length": (U32, self.head_dim),
            "attention.value_length": (U32, self.head_dim),
            "attention.layer_norm_rms_epsilon": (F32, self.eps),
            "rope.freq_base": (F32, self.base),
        }
        if sparse:
            keys["expert_count"] = (U32, self.experts)
            keys["expert_used_count"] = (U32, self.used)
            keys["expert_feed_forward_length"] = (U32, self.ff)
        general = {"general.architecture": (STRING, self.arch), "general.alignment": (U32, ALIGNMENT)}
        return {**general, **{self.arch + "." + name: value for name, value in keys.items()}}

    def tokenizer_keys(self):
        n, specials = len(self.words), len(SPECIALS)
        keys = {
            "model": (STRING, "gpt2"),
            "pre": (STRING, "qwen2"),
            "tokens": ((ARRAY, STRING), self.words),
            "token_type": ((ARRAY, I32), [1] * (n - specials) + [3] * specials),
            "merges": ((ARRAY, STRING), MERGES),
            "eos_token_id": (U32, n - 1),
            "padding_token_id": (U32, n - specials),
            "add_bos_token": (BOOL, False),
        }
        return {"tokenizer.ggml." + name: value for name, value in keys.items()}

    def save(self, path):
        write_gguf(path, self.metadata, self.tensors)

    # --- what a correct engine computes, in float64; keys and values of attention are rounded to F16

    def weight(self, name):
        return self.tensors[name].astype(np.float64)

    def rms_norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.weight(name)

    def projected(self, x, layer, name):
        """x * W + b, [rows, heads, head_dim]; the bias where there is one."""
        p = "blk.%d.attn_%s." % (layer, name)
        y = x @ self.weight(p + "weight").T
        if p + "bias" in self.tensors:
            y = y + self.weight(p + "bias")
        return y.reshape(len(x), -1, self.head_dim)

    def rotated(self, x):
        half = self.head_dim // 2
        frequencies = self.base ** (-2.0 * np.arange(half) / self.head_dim)
        kind, factor = (self.metadata.get("%s.rope.scaling.%s" % (self.arch, name)) for name in ("type", "factor"))
        if kind is not None:
            assert kind[1] == "linear", "only linear scaling is known here"
            frequencies = frequencies / factor[1]
        angles = (np.arange(len(x))[:, None] * frequencies)[:, None, :]
        low, high = x[..., :half], x[..., half:]
        return np.concatenate([low * np.cos(angles) - high * np.sin(angles),
                               low * np.sin(angles) + high * np.cos(angles)], -1)

    def attention(self, h, layer):
        p, n = "blk.%d." % layer, len(h)
        x = self.rms_norm(h, p + "attn_norm.weight")
        q = self.rotated(self.rms_norm(self.projected(x, layer, "q"), p + "attn_q_norm.weight"))
        k = self.rotated(self.rms_norm(self.projected(x, layer, "k"), p + "attn_k_norm.weight"))
        v = self.projected(x, layer, "v")
        k, v = (np.repeat(y.astype(np.float16).astype(np.float64), self.heads // self.kv_heads, 1) for y in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(self.head_dim)
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -1e30)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", scores, v).reshape(n, -1) @ self.weight(p + "attn_output.weight").T

    def feed_forward(self, h, layer):
        p = "blk.%d." % layer
        x = self.rms_norm(h, p + "ffn_norm.weight")
        if self.arch != "qwen3moe":
            return swiglu(x, *(self.weight(p + "ffn_%s.weight" % part) for part in ("gate", "up", "down")))
        gate, up, down = (self.weight(p + "ffn_%s_exps.weight" % part) for part in ("gate", "up", "down"))
        odds = x @ self.weight(p + "ffn_gate_inp.weight").T
        odds = np.exp(odds - odds.max(-1, keepdims=True))
        odds /= odds.sum(-1, keepdims=True)
        out = np.zeros_like(x)
        for row in range(len(x)):
            chosen = np.argsort(-odds[row], kind="stable")[: self.used]
            shares = odds[row][chosen] / odds[row][chosen].sum()
            for expert, share in zip(chosen, shares):
                out[row] += share * swiglu(x[row], gate[expert], up[expert], down[expert])
        return out

    def logits(self, tokens):
        h = self.weight("token_embd.weight")[tokens]
        for layer in range(self.layers):
            h = h + self.attention(h, layer)
            h = h + self.feed_forward(h, layer)
        return self.rms_norm(h, "output_norm.weight") @ self.weight("output.weight").T

    def tokenized(self, text):
        """Enough of the tokenizer for TEXT: words with the space before them, single digits, single merges."""
        tokens = []
        for word in re.findall(r" ?[a-z]+|[0-9]|[ .]", text):
            word = word.replace(" ", self.words[ord(" ")])
            parts = re.findall("|".join(merge.replace(" ", "") for merge in MERGES) + "|.", word)
            tokens += [self.words.index(part) for part in parts]
        return np.array(tokens)

    def perplexity(self):
        tokens, sum_nll, count = self.tokenized(TEXT), 0.0, 0
        for begin in range(0, WINDOW * WINDOWS, WINDOW):
            window = tokens[begin : begin + WINDOW]
            logits = self.logits(window)
            for i in range(WINDOW // 2, WINDOW - 1):
                largest = logits[i].max()
                sum_nll += largest + np.log(np.exp(logits[i] - largest).sum()) - logits[i][window[i + 1]]
                count += 1
        return np.exp(sum_nll / count)


def swiglu(x, gate, up, down):
    g = x @ gate.T
    return (g / (1 + np.exp(-g)) * (x @ up.T)) @ down.T


# --- the cases


def with_biases(arch):
    model, random = Model(arch=arch, seed=2), np.random.default_rng(5)
    for layer in range(model.layers):
        for name, heads in (("q", model.heads), ("k", model.kv_heads), ("v", model.kv_heads)):
            bias = random.standard_normal(heads * model.head_dim).astype(np.float32)
            model.tensors["blk.%d.attn_%s.bias" % (layer, name)] = bias
    return model


def with_tensor(name, shape):
    model = Model(seed=4)
    model.tensors[name] = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    return model


def with_key(key, kind, value):
    model = Model(seed=9)
    model.metadata[key] = (kind, value)
    return model


def without_key(key):
    model = Model(seed=9)
    del model.metadata[key]
    return model


def with_rope_scaling(**keys):
    model = Model(seed=3)
    for name, value in keys.items():
        model.metadata["qwen3moe.rope.scaling." + name] = value
    return model


CASES = {
    "bias-qwen3moe": (lambda: with_biases("qwen3moe"),
                      "q, k, v have biases: they are applied (perplexity 25803.93; 39052 without)"),
    "bias-qwen3": (lambda: with_biases("qwen3"), "the same, dense: 32922.67; 17469 without"),
    "shared-expert": (lambda: with_tensor("blk.0.ffn_gate_shexp.weight", (64, 64)),
                      "a tensor that the family does not use: refused by name"),
    "probs-bias": (lambda: with_tensor("blk.0.exp_probs_b.bias", (8,)), "refused by name, or applied"),
    "sinks": (lambda: with_tensor("blk.0.attn_sinks.weight", (4,)), "refused by name, or applied"),
    "output-bias": (lambda: with_tensor("output.bias", (263,)), "refused by name, or applied"),
    "third-layer": (lambda: with_tensor("blk.2.attn_norm.weight", (64,)),
                    "a layer above block_count: refused by name"),
    "padded-head": (lambda: Model(seed=7, vocab=320),
                    "the head has 320 rows, the tokenizer 263 tokens: such ids are never chosen"),
    "top-129": (lambda: Model(experts=256, used=129, seed=3, layers=1, hidden=32, ff=32, heads=1, kv_heads=1),
                "runs, or is refused before loading; never an abort"),
    "linear": (lambda: with_rope_scaling(type=(STRING, "linear"), factor=(F32, 4.0)),
               "positions divided by 4: 20721.2"),
    "yarn": (lambda: with_rope_scaling(type=(STRING, "yarn"), factor=(F32, 4.0),
                                       original_context_length=(U32, 128)),
             "YaRN applied: 22744.97"),
    "kv-array": (lambda: with_key("qwen3moe.attention.head_count_kv", (ARRAY, I32), [2, 2]),
                 "equal values: as the scalar, 8461.17"),
    "heads-array": (lambda: with_key("qwen3moe.attention.head_count", (ARRAY, U32), [4, 4]), "as the scalar"),
    "ff-array": (lambda: with_key("qwen3moe.feed_forward_length", (ARRAY, U32), [128, 128]), "as the scalar"),
    "bos-out-of-range": (lambda: with_key("tokenizer.ggml.bos_token_id", U32, 4294967295),
                         "a warning; the id is none"),
    "pre-deepseek-r1-qwen": (lambda: with_key("tokenizer.ggml.pre", STRING, "deepseek-r1-qwen"),
                             "qwen2's expression by another name"),
    "no-expert-ff": (lambda: without_key("qwen3moe.expert_feed_forward_length"),
                     "feed_forward_length / expert_used_count: 8461.17"),
    "non-causal": (lambda: with_key("qwen3moe.attention.causal", BOOL, False),
                   "refused, or attention to both sides (9850.98)"),
}


def write_text(path):
    with open(path, "w", encoding="ascii") as out:
        out.write(TEXT)


def main(arguments):
    if arguments == ["--list"]:
        for name, (_, what) in CASES.items():
            print("%-22s %s" % (name, what))
    elif len(arguments) == 2 and arguments[0] == "--text":
        write_text(arguments[1])
    elif len(arguments) == 2 and arguments[0] == "--all":
        write_text(os.path.join(arguments[1], "text.txt"))
        for name, (make, _) in CASES.items():
            make().save(os.path.join(arguments[1], name + ".gguf"))
    elif len(arguments) == 2 and arguments[0] == "--perplexity" and arguments[1] in CASES:
        print("%.2f" % CASES[arguments[1]][0]().perplexity())
    elif len(arguments) == 2 and arguments[0] in CASES:
        CASES[arguments[0]][0]().save(arguments[1])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
