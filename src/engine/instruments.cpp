// What observing a run takes of its budget. The ledger's rings are made to the run and to what the plan
// leaves over, so that a run with instruments has the slots it has without; where that cannot be, the plan
// says what they cost and which budget keeps it. Plans again and again with the engine's own planner, loads
// nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/engine.h"

namespace weir {

namespace {

/// Rounds that a ledger keeps at least. A trace has the spans of fewer if every expert is read: of usual
/// rounds it holds about as many.
constexpr int least_rounds = 16, least_traced_rounds = 8, least_span_rounds = 4;
/// The widest line every N rounds that the ring's size cares for.
constexpr int widest_line = 32;

int spans_of(const ModelConfig& c, int rounds, int experts) {
  // Of a layer: five roles and a few switches back; of an expert: its reads, and waiting and computing in
  // turn.
  const int64_t a_round = 8 + static_cast<int64_t>(c.layers) * (8 + 5 * static_cast<int64_t>(experts));
  return static_cast<int>(std::min<int64_t>(a_round * rounds, LedgerOptions{}.ring_spans));
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

}  // namespace

void Engine::plan_instruments(PlanRequest& r, int rows) const {
  std::vector<std::string> names;
  if (options_.ledger.enabled) {
    r.instrument_bytes += Ledger::bytes(options_.ledger);
    names.push_back(fmt::format("ledger of the last {} rounds", options_.ledger.ring_rounds));
    if (options_.ledger.trace)
      names.push_back(fmt::format("trace of the last {} spans", options_.ledger.ring_spans));
  }
  if (!options_.route_trace.empty() && config().experts > 0) {
    r.instrument_bytes += RouteTraceWriter::bytes(store_.layers(), rows, config().top_k);
    names.emplace_back("routing trace");
  }
  r.instruments = listed(names);
}

/// Who takes what is taken, and whether that is more than one.
static std::pair<std::string, bool> instrument_names(const EngineOptions& o) {
  std::vector<std::string> names;
  if (o.ledger.enabled) names.emplace_back("the ledger");
  if (o.ledger.enabled && o.ledger.trace) names.emplace_back("the trace");
  if (!o.route_trace.empty()) names.emplace_back("the routing trace");
  return {listed(names), names.size() > 1};
}

std::optional<Engine::Setting> Engine::setting_with(uint64_t budget, Observed observed) {
  const int context = options_.context, wanted = wanted_context_;
  const uint64_t own_budget = budget_.bytes;
  budget_.bytes = budget;
  observed_ = observed == Observed::yes;
  if (!context_asked_) shrink_context();
  std::optional<Setting> setting;
  try {
    const int chunk = choose_chunk();
    setting = {options_.context, chunk, make_plan(plan_request(chunk)).slots};
  } catch (const Error&) {  // does not fit: refused in its own time, with its numbers
  }
  options_.context = context, wanted_context_ = wanted;
  budget_.bytes = own_budget;
  observed_ = true;
  return setting;
}

Engine::Rings Engine::rings() const {
  const ModelConfig& c = config();
  const LedgerOptions& l = options_.ledger;
  // A token is a byte at least, and no round is narrower than the narrowest.
  const int context = options_.context, narrowest = narrowest_chunk();
  const int prompt = prompt_bytes_ == 0 || prompt_bytes_ > static_cast<uint64_t>(context)
                         ? context
                         : static_cast<int>(prompt_bytes_);
  const int prefill = (prompt + narrowest - 1) / narrowest + 1;
  const int decode = options_.new_tokens > 0 ? std::min(options_.new_tokens, context) : context;
  Rings r;
  r.rounds = std::min(l.ring_rounds, prefill + decode);
  r.least_rounds = std::min(
      r.rounds, std::max(l.trace ? least_traced_rounds : least_rounds, std::min(l.log_every, widest_line)));
  r.spans = std::min(l.ring_spans, spans_of(c, std::min(prefill, r.rounds), c.experts) +
                                       spans_of(c, std::min(decode, r.rounds), c.top_k));
  r.least_spans = std::min(r.spans, spans_of(c, std::min(r.rounds, least_span_rounds), c.top_k));
  return r;
}

void Engine::size_rings(const Rings& r, int step) {
  const auto between = [&](int low, int high) {
    return low + static_cast<int>(static_cast<int64_t>(high - low) * step / Rings::steps);
  };
  options_.ledger.ring_rounds = between(r.least_rounds, r.rounds);
  options_.ledger.ring_spans = between(r.least_spans, r.spans);
}

std::string Engine::fit_instruments() {
  const bool fit = options_.ledger.enabled && options_.ledger.fit;
  if (!options_.ledger.enabled && options_.route_trace.empty()) return {};
  const Rings r = rings();
  if (fit) size_rings(r, 0);
  const auto with = setting_with(budget_.bytes, Observed::yes);
  if (!with) return {};
  const std::string cost = instrument_cost(*with);
  if (!fit) return cost;
  int low = 0;  // the largest rings that cost no more than the smallest do
  for (int high = Rings::steps; low < high;) {
    const int middle = low + (high - low + 1) / 2;
    size_rings(r, middle);
    if (setting_with(budget_.bytes, Observed::yes) == with) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  size_rings(r, low);
  return cost;
}

std::string Engine::budget_that_keeps(const Setting& setting) {
  const auto keeps = [&](uint64_t budget) {
    const auto with = setting_with(budget, Observed::yes);
    return with && with->context >= setting.context && with->chunk >= setting.chunk &&
           with->slots >= setting.slots;
  };
  // What they take is enough, but where a larger budget also means wider rounds.
  uint64_t low = budget_.bytes, step = plan_request(narrowest_chunk()).instrument_bytes, high = low + step;
  while (!keeps(high) && step < low) step *= 2, high = low + step;
  if (!keeps(high)) return {};
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (keeps(middle) ? high : low) = middle;
  }
  for (const int decimals : {1, 2}) {  // a figure that is easily typed, where it does as well
    const double unit = static_cast<double>(1 << 20) / std::pow(10, decimals);
    const std::string text =
        fmt::format("{:.{}f}MiB", std::ceil(static_cast<double>(high) / unit) * unit / (1 << 20), decimals);
    if (keeps(parse_bytes("--memory", text))) return text;
  }
  return fmt::format("{}", high);
}

std::string Engine::instrument_cost(const Setting& with) {
  const auto without = setting_with(budget_.bytes, Observed::no);
  if (!without) return {};
  std::vector<std::string> lost, kept;
  const auto compare = [&](int had, int has, const char* one, const char* many, const std::string& keeps) {
    if (has >= had) return;
    lost.push_back(fmt::format("{} {}", had - has, had - has == 1 ? one : many));
    kept.push_back(keeps);
  };
  compare(without->slots, with.slots, "slot a layer", "slots a layer",
          fmt::format("{} slots", without->slots));
  compare(without->chunk, with.chunk, "row of a prompt's round", "rows of a prompt's round",
          fmt::format("{} rows", without->chunk));
  compare(without->context, with.context, "position of the context", "positions of the context",
          fmt::format("{} positions", without->context));
  if (lost.empty()) return {};
  const auto [names, several] = instrument_names(options_);
  std::string line = fmt::format("{} {} the place of {}", names, several ? "take" : "takes", listed(lost));
  if (const std::string budget = budget_that_keeps(*without); !budget.empty())
    line += fmt::format(": --memory {} keeps {}", budget, listed(kept));
  return line;
}

}  // namespace weir
