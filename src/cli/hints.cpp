// The table of llama.cpp's options (common/arg.cpp, llama-bench and llama-perplexity there) that weir lacks.
// An option that weir has by the same name is not here: each command looks for its own options first.
#include "cli/hints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>

namespace weir::cli {

namespace {

constexpr Hint hints[] = {
    // Where the model is computed.
    {"-ngl,--gpu-layers,--n-gpu-layers",
     "keeps a model on one device: --device cuda:0 computes all its layers on a GPU, within --vram; without "
     "it "
     "all are on the CPU, within --memory"},
    {"-sm,--split-mode,-ts,--tensor-split", "keeps a model on one device: --device cuda:N chooses it"},
    {"-mg,--main-gpu", "takes the GPU's number from --device cuda:N"},
    {"-dev", "calls it --device: --device cpu or --device cuda:N"},
    {"--list-devices", "takes a GPU by its number, --device cuda:N: nvidia-smi lists them"},
    {"-ot,--override-tensor", "places tensors by the budget, --memory or --vram: weir plan shows where"},
    {"-cmoe,--cpu-moe,-ncmoe,--n-cpu-moe",
     "keeps all experts on the model's device: with --device cpu they are streamed to as many slots as "
     "--memory "
     "holds (--expert-slots N), on a GPU all have to fit --vram"},
    {"-nkvo,--no-kv-offload,-kvo,--kv-offload", "keeps keys and values on the model's device: --device"},
    {"-nopo,--no-op-offload,--op-offload", "computes every operation on the model's device: --device"},
    {"-fit,--fit,-fitt,--fit-target,-fitc,--fit-ctx",
     "always fits its budget: set it with --memory, on a GPU with --vram; weir plan shows how it is spent"},
    {"--rpc,-rpc", "computes on one machine: leave it out"},

    // Attention and its cache.
    {"-fa,--flash-attn",
     "has one way to compute attention, never with a matrix of all scores: leave it out (--arithmetic "
     "chooses "
     "its rounding on a GPU)"},
    {"-ctk,--cache-type-k,-ctv,--cache-type-v",
     "keeps keys and values in 16 bits: -c N bounds what they take"},
    {"-dt,--defrag-thold", "has nothing to defragment: leave it out"},
    {"-kvu,--kv-unified,-no-kvu,--no-kv-unified", "gives each lane a cache of its own: leave it out"},
    {"--swa-full", "has no model with a sliding window: leave it out"},
    {"--keep,--context-shift,--no-context-shift",
     "ends a generation where the context is full and never shifts it: -c N sets the context"},
    {"-gan,--grp-attn-n,-gaw,--grp-attn-w", "does not group positions: leave it out"},
    {"--rope-scaling,--rope-scale,--rope-freq-base,--rope-freq-scale,--yarn-orig-ctx,--yarn-ext-factor,"
     "--yarn-attn-factor,--yarn-beta-slow,--yarn-beta-fast",
     "takes RoPE's base and scaling (linear, yarn) from the model file: leave it out"},

    // Batches and threads.
    {"-b,--batch-size,-ub,--ubatch-size", "calls the prompt rows of a round --prefill-chunk N"},
    {"-np,--parallel,-ns,--sequences,-cb,--cont-batching,-nocb,--no-cont-batching",
     "run serves one prompt; weir bench --lanes N decodes several side by side"},
    {"-tb,--threads-batch", "uses the same threads for prompt and decoding: -t N"},
    {"-C,--cpu-mask,-Cr,--cpu-range,--cpu-strict,-Cb,--cpu-mask-batch,-Crb,--cpu-range-batch,--cpu-strict-"
     "batch",
     "uses the processors that it may: taskset -c 0-7 weir ... chooses them, -t N how many"},
    {"--prio,--prio-batch", "runs at the priority that it was started with: nice weir ... lowers it"},
    {"--poll,--poll-batch", "has one way to wait for work: leave it out"},
    {"--numa", "does not place memory by itself: numactl --cpunodebind=0 --membind=0 weir ... does"},

    // Memory and files.
    {"--mlock", "locks nothing: --memory bounds what it takes, so leave it out"},
    {"--mmap,--no-mmap,-mmp", "maps no file: it reads experts as --io auto, direct or buffered says"},
    {"-dio,--direct-io,-ndio,--no-direct-io", "calls it --io direct or --io buffered"},
    {"-lm,--load-mode,-lzm,--lazy-mode",
     "maps no file: it reads experts as --io auto, direct or buffered says"},
    {"--repack,-nr,--no-repack,--no-host", "uses weights as they lie in the file: leave it out"},
    {"--moe-cache", "sizes the cache of experts by --memory, or --expert-slots N"},
    {"--check-tensors", "fails by itself on logits that are not finite: leave it out"},
    {"--override-kv", "takes the model's keys from the file alone: leave it out"},
    {"--warmup,--no-warmup,--n-gen-warmup",
     "run has no warm-up, and weir bench always has one: leave it out"},
    {"-hf,-hfr,--hf-repo,-hff,--hf-file,-hft,--hf-token,-mu,--model-url,-dr,--docker-repo",
     "downloads nothing: fetch the GGUF file, then give it with -m FILE"},
    {"--offline,-cl,--cache-list", "never uses the network and keeps no store of models: -m FILE"},
    {"-md,--model-draft,-hfd,-hfrd,--hf-repo-draft,--draft,--draft-n,--draft-max,--draft-min,--draft-n-min,"
     "--draft-p-min,--draft-p-split,-cd,--ctx-size-draft,-devd,--device-draft,-ngld,--gpu-layers-draft,"
     "--n-gpu-layers-draft,-ctkd,--cache-type-k-draft,-ctvd,--cache-type-v-draft,-td,--threads-draft,"
     "-otd,--override-tensor-draft,--spec-replace",
     "has no draft models yet: leave it out"},
    {"--lora,--lora-scaled,--control-vector,--control-vector-scaled,--control-vector-layer-range",
     "loads no adapters: merge it into the GGUF file, then -m FILE"},
    {"-mm,--mmproj,-mmu,--mmproj-url,--no-mmproj,--image,--audio,-hfv,-hfrv,--hf-repo-v,-hffv,--hf-file-v,-"
     "mv,"
     "--model-vocoder",
     "is for text alone: leave it out"},

    // Chats.
    {"-cnv,--conversation,-i,--interactive,-if,--interactive-first,-mli,--multiline-input,--simple-io,-co,"
     "--color",
     "run has no chat: it continues the text of -p or -f once"},
    {"-no-cnv,--no-conversation,-st,--single-turn", "run never converses: leave it out"},
    {"-sys,--system-prompt,-sysf,--system-prompt-file",
     "applies no chat template: write the system text into -p, in the model's own markup"},
    {"--jinja,--no-jinja,--chat-template,--chat-template-file,--chat-template-kwargs,--reasoning-format,"
     "--reasoning-budget,--in-prefix,--in-prefix-bos,--in-suffix",
     "applies no chat template: -p is raw text, in which the model's special tokens are parsed"},
    {"-r,--reverse-prompt", "run stops at the model's end of text or after -n N tokens"},
    {"-e,--escape",
     "processes no escapes in a prompt: give the characters themselves, in bash as -p $'one\\ntwo'"},
    {"--no-escape", "never processes escapes in a prompt: leave it out"},
    {"-bf,--binary-file", "reads prompts as UTF-8 text: -f FILE"},
    {"--display-prompt,--no-display-prompt",
     "run prints what it generates, without the prompt: leave it out"},
    {"--verbose-prompt", "shows the tokens of a prompt with weir tokenize -m FILE -p TEXT"},
    {"-sp,--special", "run gives the ids of all tokens with --json"},
    {"--prompt-cache,--prompt-cache-all,--prompt-cache-ro", "keeps nothing between runs: leave it out"},

    // Sampling.
    {"--samplers,--sampler-seq,--sampling-seq",
     "samples in one order: --repeat-penalty, --top-k, --top-p, --min-p, --temp"},
    {"--mirostat,--mirostat-lr,--mirostat-ent,--typical,--typical-p,--top-nsigma,--top-n-sigma,"
     "--xtc-probability,--xtc-threshold,--dynatemp-range,--dynatemp-exp,--adaptive-target,--adaptive-decay",
     "samples by --top-k, --top-p, --min-p and --temp"},
    {"--presence-penalty,--frequency-penalty,--dry-multiplier,--dry-base,--dry-allowed-length,"
     "--dry-penalty-last-n,--dry-sequence-breaker",
     "has one penalty, --repeat-penalty, over --repeat-last-n tokens"},
    {"-l,--logit-bias", "changes no logits but by --repeat-penalty: leave it out"},
    {"--grammar,--grammar-file,-j,--json-schema,-jf,--json-schema-file",
     "does not constrain text (--json is the form of its report): leave it out"},
    {"-bs,--backend-sampling", "chooses where it samples by itself: leave it out"},

    // Reports.
    {"-v,--verbose,--log-verbose,-lv,--verbosity,--log-verbosity,--perf,--no-perf,--show-timings,-ptc,"
     "--print-token-count",
     "reports on stderr, and with --ledger 32 where the time goes"},
    {"--log-disable,--log-file,--log-colors,--log-prefix,--log-timestamps",
     "writes its log to stderr: 2>FILE keeps it, 2>/dev/null drops it"},
    {"--license,--completion-bash,--usage", "has --help and --version"},

    // A server.
    {"-a,--alias,--host,--port,--path,--api-prefix,--api-key,--api-key-file,--ssl-key-file,--ssl-cert-file,-"
     "to,"
     "--timeout,--threads-http,--cache-prompt,--cache-reuse,--metrics,--props,--no-slots,--slot-save-path,-"
     "sps,"
     "--slot-prompt-similarity,-cram,--cache-ram,--webui,--no-webui",
     "has no server: weir run answers one prompt"},
    {"--embedding,--embeddings,-embd,--pooling,--attention,--rerank,--reranking",
     "generates text and computes no embeddings: leave it out"},

    // llama-bench, llama-perplexity and llama-tokenize.
    {"-pg",
     "bench measures prompts (-p N) and decoding (-n N), and decoding after N positions with --depth N"},
    {"-d,--n-depth", "bench calls it --depth N"},
    {"-o,--output,-oe,--output-err", "prints JSON with --json"},
    {"--progress,--delay", "bench has no such option: leave it out"},
    {"--ppl-stride,--ppl-output-type,--hellaswag,--hellaswag-tasks,--winogrande,--winogrande-tasks,"
     "--multiple-choice,--multiple-choice-tasks,--kl-divergence,--kl-divergence-base,--save-all-logits,"
     "--all-logits",
     "perplexity scores windows of -c N tokens and nothing else"},
    {"--ids,--stdin,--no-bos,--show-count,--log-ids",
     "tokenize reads -p, -f or standard input and prints ids and pieces, as JSON with --json"},
};

struct CommandHint {
  const char* names;
  const char* sentence;
};
constexpr CommandHint command_hints[] = {
    {"cli,main,completion,generate,simple,llama-cli,llama-completion",
     "weir run -m FILE -p TEXT generates text"},
    {"chat", "weir has no chat: weir run -m FILE -p TEXT continues a text"},
    {"server,serve,llama-server", "weir has no server: weir run -m FILE -p TEXT answers one prompt"},
    {"llama-bench,batched-bench", "weir bench -m FILE measures speed"},
    {"ppl,llama-perplexity", "weir perplexity -m FILE -f TEXT computes it"},
    {"llama-tokenize,tok", "weir tokenize -m FILE -p TEXT prints tokens"},
    {"quantize,llama-quantize,convert,imatrix", "weir runs GGUF files as they are and makes none"},
    {"pull,download,fetch", "weir downloads nothing: fetch the GGUF file, then weir run -m FILE"},
    {"version", "weir --version prints it"},
    {"show,inspect,describe,gguf", "weir info -m FILE describes a model file"},
};

bool among(const std::string& name, const char* names) {
  std::istringstream in(names);
  for (std::string item; std::getline(in, item, ',');)
    if (item == name) return true;
  return false;
}

std::string without_dashes(const std::string& word) {
  std::string out = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  for (char& c : out) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace

std::span<const Hint> llama_hints() { return hints; }

std::string option_hint(const std::string& name) {
  std::string spelled = name;
  std::replace(spelled.begin(), spelled.end(), '_', '-');
  for (const Hint& hint : hints)
    if (among(spelled, hint.names)) return fmt::format("{} is llama.cpp's: weir {}", name, hint.advice);
  return {};
}

std::string command_hint(const std::string& name) {
  for (const CommandHint& hint : command_hints)
    if (among(name, hint.names)) return hint.sentence;
  return {};
}

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> d(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) d[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) d[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      d[i][j] =
          std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string nearest(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string typed = without_dashes(word);
  // A word of any length may be typed: what is much longer than every name is near none.
  if (typed.size() < 2 || typed.size() > 64) return {};
  std::string best;
  int least = std::max(1, static_cast<int>(typed.size()) / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::string name = without_dashes(candidate);
    if (name.size() < 2) continue;
    const int distance = edit_distance(typed, name);
    if (distance < least) least = distance, best = candidate;
  }
  if (!best.empty() || typed.size() < 3) return best;
  for (const std::string& candidate : candidates) {
    const std::string name = without_dashes(candidate);
    if (name.starts_with(typed) || name.ends_with("-" + typed)) return candidate;
  }
  return {};
}

}  // namespace weir::cli
