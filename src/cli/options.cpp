#include "cli/options.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/args.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "text/tokenizer.h"

namespace weir::cli {

namespace {

Isa parse_isa(const std::string& text) {
  if (text == "auto") return Isa::automatic;
  if (text == "scalar") return Isa::scalar;
  if (text == "avx2") return Isa::avx2;
  if (text == "avx512") return Isa::avx512;
  throw input_error("--isa {}: expected auto, scalar, avx2 or avx512", text);
}

Arithmetic parse_arithmetic(const std::string& text) {
  if (text == "portable") return Arithmetic::portable;
  if (text == "fast") return Arithmetic::fast;
  throw input_error("--arithmetic {}: expected portable or fast", quote(text));
}

Role parse_role(const std::string& text) {
  for (int r = 0; r < role_count - 1; ++r)
    if (text == role_name(static_cast<Role>(r))) return static_cast<Role>(r);
  throw input_error("--inject-role {}: expected the name of a role of the ledger", text);
}

struct Descriptor {
  int fd;
  ~Descriptor() { close(fd); }
};

/// What `fd` holds, read to its end. A pipe's length shows as it comes, so the limit is kept while reading.
std::string read_text(int fd, const std::string& name, uint64_t limit) {
  constexpr size_t block = 64 << 10;
  struct stat about {};
  if (fstat(fd, &about) == 0 && S_ISDIR(about.st_mode))
    throw input_error("{}: is a directory: expected a text file", name);
  const auto check = [&](uint64_t bytes, const char* is) {
    if (bytes > limit)
      throw input_error(
          "{}: the text is {}{} bytes, and the memory budget takes {} at most: use a shorter one", name, is,
          bytes, limit);
  };
  std::string text;
  if (S_ISREG(about.st_mode)) {
    check(static_cast<uint64_t>(about.st_size), "");
    text.reserve(static_cast<size_t>(about.st_size) + block);  // held once: it never moves
  }
  for (;;) {
    const size_t had = text.size();
    text.resize(had + block);
    const ssize_t n = read(fd, text.data() + had, block);
    text.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return text;
    if (n < 0 && errno != EINTR)
      throw input_error("{}: cannot be read ({}): expected text", name, strerror(errno));
    check(text.size(), "over ");
  }
}

/// The instrument, as far as `with` has it.
void add_ledger(EngineFlags& f, CommandLine& line, EngineFlags::With with) {
  if (with == EngineFlags::With::engine) return;
  line.group(Group::ledger);
  line.option("--ledger", &f.ledger, "timing ledger: 0 off, N > 0 on with a line every N decode rounds");
  if (with != EngineFlags::With::engine_and_ledger) return;
  line.option("--ledger-json", &f.ledger_json, "write the ledger as JSON to this file (switches it on)");
  line.option("--trace", &f.trace,
              "write a Chrome trace of the last rounds to this file (switches the ledger on)");
  line.option("--route-trace", &f.route_trace, "record the routing in this file");
  line.group(Group::tests);
  line.option("--inject-role", &f.inject_role, "spin in this role in about half of the rounds");
  line.option("--inject-us", &f.inject_us, 0, 1'000'000, "microseconds of that spin");
}

}  // namespace

void EngineFlags::add(CommandLine& line, With with) {
  line.group(Group::model);
  line.option("-m,--model", &model, "model file (GGUF; the first part of a split model)");
  line.positional("MODEL", &positional_model, "model file, instead of -m");
  line.group(Group::common);
  line.option("-c,--ctx-size", &context, 0, 1 << 30,
              "positions of the context; 0: the smaller of the model's and 4096, or what the budget holds");
  line.option("-t,--threads", &threads, 0, 1024,
              "threads; 0: the processors this process may use, a container's quota counted");
  line.option("--memory", &memory,
              "memory budget of the whole process, e.g. 3GiB; default: what the machine leaves");
  line.option("--device", &device, "where the model is computed: cpu, or cuda:N for a GPU");
  line.group(Group::engine);
  line.option("--vram", &vram,
              "memory budget on the GPU, e.g. 24GiB; default: what is free there, less a reserve");
  line.option("--expert-slots", &expert_slots, 1, 1 << 20,
              "expert slots in each layer; default: as many as fit");
  line.option("--expert-policy", &policy, "which expert leaves its slot: lfu or lru; default: lfu");
  line.option("--prefill-chunk", &prefill_chunk, 0, 65'536,
              "prompt rows in a round; 0: 512 (on a GPU 2048), fewer in a tight budget");
  line.option("--io", &io, "expert reads: auto, direct (unbuffered) or buffered");
  line.option("--read-advice", &read_advice, "read-ahead hints of buffered reads: off or bounded");
  line.option(
      "--arithmetic", &arithmetic,
      "attention's arithmetic: portable (the same bits on every device) or fast; default: fast on a GPU");
  line.group(Group::tests);
  line.option("--isa", &isa, "instruction set: auto, avx512, avx2 or scalar (same bits)");
  line.flag("--no-graphs", &no_graphs, "the GPU records no rounds");
  add_ledger(*this, line, with);
  line.group(Group::first);
}

EngineOptions EngineFlags::options() const {
  EngineOptions o;
  if (!model.empty() && !positional_model.empty())
    throw input_error("the model was given twice: {} and {}", model, positional_model);
  o.model = model.empty() ? positional_model : model;
  if (o.model.empty()) throw input_error("no model: give a GGUF file with -m");
  o.device = device;
  if (arithmetic) o.arithmetic = parse_arithmetic(*arithmetic);
  if (vram) o.vram = parse_bytes("--vram", *vram);
  o.graphs = !no_graphs;
  o.threads = threads;
  o.context = context;
  o.prefill_chunk = prefill_chunk;
  o.expert_slots = expert_slots;
  if (memory) o.memory = parse_bytes("--memory", *memory);
  if (policy) o.policy = parse_expert_policy(*policy);
  o.reader.mode = parse_io_mode(io);
  o.reader.advice = parse_read_advice(read_advice);
  o.isa = parse_isa(isa);
  o.route_trace = route_trace;
  const auto variable = environment("WEIR_LEDGER");
  const int every =
      ledger ? parse_ledger_flag(*ledger) : parse_ledger_environment(variable ? variable->c_str() : nullptr);
  o.ledger.enabled = every > 0 || !ledger_json.empty() || !trace.empty();
  o.ledger.log_every = every;
  o.ledger.trace = !trace.empty();
  o.ledger.fit = true;
  if (inject_role.empty() != (inject_us == 0))
    throw input_error("--inject-role and --inject-us belong together: expected both or neither");
  if (!inject_role.empty()) {
    o.ledger.inject_role = parse_role(inject_role);
    o.ledger.inject_ns = static_cast<uint64_t>(inject_us) * 1000;
  }
  return o;
}

void SamplerFlags::add(CommandLine& line) {
  line.group(Group::sampling);
  line.flag("--greedy", &values.greedy, "always the most likely token");
  line.option("--temp", &values.temperature, 0.0f, 1000.0f, "temperature; 0: greedy");
  line.option("--top-k", &values.top_k, 0, 1 << 30, "keep the k most likely tokens; 0: all");
  line.option("--top-p", &values.top_p, 0.0f, 1.0f, "keep the most likely tokens up to this share; 1: all");
  line.option("--min-p", &values.min_p, 0.0f, 1.0f,
              "drop tokens below this share of the most likely one's; 0: none");
  line.option("--repeat-penalty", &values.repeat_penalty, 0.01f, 100.0f,
              "divides logits of recent tokens; 1: off");
  line.option("--repeat-last-n", &values.repeat_last, 0, 1 << 30, "how many recent tokens are penalised");
  line.option_or_minus_one("-s,--seed", &seed, "seed of the draws; -1, and the default: random, and printed");
  line.group(Group::first);
}

SamplerOptions SamplerFlags::options() const {
  SamplerOptions o = values;
  std::random_device device;
  o.seed = seed ? *seed : device();
  return o;
}

uint64_t text_limit(const std::optional<uint64_t>& memory) {
  return choose_budget(memory, read_memory_limits()).bytes / 2;
}

std::string prompt_text(const std::optional<std::string>& prompt, const std::string& file, uint64_t limit) {
  if (prompt && !file.empty()) throw input_error("both -p and -f were given: expected one of them");
  if (!prompt && file.empty() && isatty(STDIN_FILENO) == 1)
    throw input_error("no prompt: give its text with -p, a file with -f, or pipe it in");
  if (!prompt) return file_text(file.empty() ? "-" : file, limit);
  if (prompt->empty()) throw input_error("the prompt is empty: expected text");
  require_utf8(*prompt, "the prompt");
  return *prompt;
}

std::string file_text(const std::string& path, uint64_t limit) {
  if (path == "-") {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    if (poll(&input, 1, 1000) == 0) log_line("weir: waiting for the text on standard input");
    std::string text = read_text(STDIN_FILENO, "standard input", limit);
    if (text.empty())
      throw input_error(
          "no prompt: standard input is empty; give text with -p, a file with -f, or pipe it in");
    require_utf8(text, "standard input");
    return text;
  }
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw input_error("{}: cannot be read ({}): expected a text file", path, strerror(errno));
  const Descriptor closed_at_the_end{fd};
  std::string text = read_text(fd, path, limit);
  if (text.empty()) throw input_error("the prompt file {} is empty: expected text", path);
  require_utf8(text, path);
  return text;
}

std::unique_ptr<Engine> open_engine(const EngineOptions& options, Trace trace) {
  auto engine = std::make_unique<Engine>(options);
  if (engine->config().experts == 0 && !options.route_trace.empty() && trace == Trace::asked_for)
    throw input_error("{}: has no routed experts: --route-trace has nothing to record",
                      engine->model().path());
  log_line(fmt::format("weir: {} ({}), {}", engine->model().path(),
                       human_bytes(engine->model().total_bytes()), engine->description()));
  log_line(describe_plan(engine->plan()));
  for (const auto& warning : engine->plan().warnings) log_warning(warning);
  engine->load();
  return engine;
}

}  // namespace weir::cli
