#include "engine/round.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "experts/diagnosis.h"
#include "ledger/report.h"

namespace weir {

namespace {

constexpr auto head_rows = Family::head_rows;

/// Recorded rounds bound their positions by a power of two from here on, so that few recordings are needed.
constexpr int shortest_recorded = 256;

/// Whether no lane has two rows: those of one lane lie together.
bool rows_are_lone(std::span<const int32_t> lane) {
  return std::adjacent_find(lane.begin(), lane.end()) == lane.end();
}

}  // namespace

bool Round::step() {
  Ledger* ledger = e_.ledger();
  enter_role(ledger, Role::schedule);
  admit();           // waiting requests take free lanes
  if (!compose()) {  // the rows: prompt rows, or one per decoding lane, never both
    if (ledger && ledger->running()) ledger->end_generation();  // the last lane was cancelled
    return false;
  }
  if (ledger) ledger->begin_round(phase_);
  if (e_.trace_) e_.trace_->begin_round(phase_);
  evaluate();  // the layers, and the head of the first outputs; experts are awaited inside
  enter_role(ledger, Role::schedule);
  drop_cancelled();
  fail_lanes();  // rows whose experts could not be read take their lanes with them
  decide();      // sample, deliver; the head of further outputs, in slices
  enter_role(ledger, Role::schedule);
  close_finished();
  close_account();
  return true;
}

void Round::give_up(const std::exception& error) {
  e_.device_->abandon();
  const auto* known = dynamic_cast<const Error*>(&error);
  for (auto& lane : e_.lanes_) {
    if (!lane.open) continue;
    lane.result.error_kind = known ? known->kind() : Error::Kind::failure;
    fail(lane, error.what());
  }
  if (!e_.ledger()) return;
  e_.ledger()->end_generation();
  if (!e_.waiting_.empty()) e_.start_clock();
}

void Round::close_account() {
  Ledger* ledger = e_.ledger();
  if (!ledger) return;
  e_.device_->file_imbalance();
  ledger->end_round(static_cast<int>(token_.size()), lanes_in_round_);
  log_round_line(ledger);
  if (!e_.any_open() && e_.waiting_.empty()) ledger->end_generation();
}

Round::Round(Engine& engine) : e_(engine), sampler_(engine.tokenizer().size()) {
  const auto rows = static_cast<size_t>(std::max(e_.options_.prefill_chunk, e_.options_.lanes));
  const auto vocab = static_cast<size_t>(e_.config().vocab);
  Device& d = *e_.device_;
  batch_ = d.allocate_host(4 * rows * sizeof(int32_t), "batch");
  device_batch_ = d.allocate(4 * rows * sizeof(int32_t), "batch");
  host_logits_ = d.allocate_host(head_rows * vocab * sizeof(float), "logits");
  logits_ = d.allocate(head_rows * vocab * sizeof(float), "logits");
  host_choices_ = d.allocate_host(head_rows * sizeof(Choice), "choices");
  choices_ = d.allocate(head_rows * sizeof(Choice), "choices");
  end_tokens_ = d.allocate(engine.end_tokens_.size() * sizeof(Token), "end tokens");
  d.upload(end_tokens_.data(), engine.end_tokens_.data(), end_tokens_.bytes());
  for (auto* v : {&token_, &position_, &lane_}) v->reserve(rows);
  lane_spans_.reserve(static_cast<size_t>(e_.options_.lanes));
  outputs_.reserve(rows);
}

uint64_t Round::device_bytes(int max_rows, int vocab, int end_tokens) {
  return 4 * static_cast<uint64_t>(max_rows) * sizeof(int32_t) +
         head_rows * (static_cast<uint64_t>(vocab) * sizeof(float) + sizeof(Choice)) +
         static_cast<uint64_t>(end_tokens) * sizeof(Token);
}

uint64_t Round::host_bytes(int max_rows, int vocab) {
  return static_cast<uint64_t>(max_rows) * (7 * sizeof(int32_t) + sizeof(Output)) +
         head_rows * (static_cast<uint64_t>(vocab) * sizeof(float) + sizeof(Choice)) +
         Sampler::host_bytes(vocab);
}

void Round::admit() {
  for (auto& lane : e_.lanes_) {
    if (e_.waiting_.empty()) return;
    if (lane.open) continue;
    lane = std::move(e_.waiting_.front());
    lane.open = true;
    e_.waiting_.pop_front();
  }
}

bool Round::compose() {
  token_.clear(), position_.clear(), lane_.clear(), outputs_.clear(), faults_.clear();
  lanes_in_round_ = 0;
  bool any_prefill = false, any_decode = false;
  for (auto& lane : e_.lanes_) {
    if (lane.open && lane.request.cancel && lane.request.cancel->load(std::memory_order_relaxed))
      finish(lane, Finish::cancelled);
    any_prefill |= lane.prefilling();
    any_decode |= lane.decoding();
  }
  if (!any_prefill && !any_decode) return false;
  // Prompts go first, but a long one lets the decoding lanes through after every chunk.
  const bool prefill = any_prefill && !(any_decode && prefilled_last_);
  phase_ = prefill ? Phase::prefill : Phase::decode;
  prefilled_last_ = prefill;
  for (size_t i = 0; i < e_.lanes_.size(); ++i) {
    Lane& lane = e_.lanes_[i];
    const int room = e_.options_.prefill_chunk - static_cast<int>(token_.size());
    if (prefill && lane.prefilling() && room > 0)
      add_rows(lane, static_cast<int>(i), std::min(room, lane.prompt_n - lane.evaluated));
    if (!prefill && lane.decoding()) add_rows(lane, static_cast<int>(i), 1);
  }
  return true;
}

void Round::add_rows(Lane& lane, int index, int count) {
  const Request& r = lane.request;
  for (int i = 0; i < count; ++i) {
    const int position = lane.evaluated + i;
    const bool newest = position + 1 == static_cast<int>(lane.tokens.size());
    const bool wanted = r.on_logits && position >= r.logits_from;
    const bool samples = newest && r.max_tokens != 0;
    if (wanted || samples) {
      Output output{static_cast<int>(token_.size()), index, position, samples, wanted};
      output.logits = needs_logits(lane, output);
      output.ban = r.ignore_eos;
      outputs_.push_back(output);
    }
    token_.push_back(lane.tokens[static_cast<size_t>(position)]);
    position_.push_back(position);
    lane_.push_back(index);
  }
  lane.evaluated += count;
  ++lanes_in_round_;
}

/// A host that can read the device's memory chooses itself. A GPU's choice is the sampler's.
bool Round::needs_logits(const Lane& lane, const Output& output) const {
  const Request& r = lane.request;
  if (e_.device_->host_visible() || output.show || r.hash_logits) return true;
  const bool forced = lane.result.tokens.size() < r.forced.size();
  return !forced && !Sampler::is_argmax(r.sampler);
}

/// One stretch of work for the device, and a wait: nothing on the host happens in between. Decode rounds are
/// recorded, or replayed where an equal one was before.
void Round::evaluate() {
  Device& d = *e_.device_;
  auto* at = batch_.as<int32_t>();
  for (const auto* list : {&token_, &position_, &lane_}) at = std::copy(list->begin(), list->end(), at);
  for (const Output& output : outputs_) *at++ = output.row;
  const auto rows = static_cast<int>(token_.size());
  const auto* batch = device_batch_.as<int32_t>();
  const auto key = record_key();
  rows_ = {rows, batch, batch + rows, batch + 2 * rows};
  device_index_ = batch + 3 * rows;
  rows_.longest = key ? key->longest : *std::max_element(position_.begin(), position_.end()) + 1;
  take_lanes();
  rows_.kv_positions = positions_seen(lane_spans_, 0);
  rows_.lone = rows_are_lone(lane_);
  d.begin_batch(lane_spans_);
  if (!key || !d.replay(*key, rows_.kv_positions)) {
    if (key) d.begin_record(*key);
    upload();
    forward(key ? nullptr : shared_cancel());  // a recording is whole or not at all
    if (!outputs_.empty()) head(0);
    if (key) d.end_record();
  }
  d.synchronize();  // hazard: the next round refills batch_; and the results are read from here on
}

/// Rows of one lane lie together.
void Round::take_lanes() {
  lane_spans_.clear();
  for (size_t i = 0; i < lane_.size(); ++i) {
    if (i == 0 || lane_[i] != lane_[i - 1]) lane_spans_.push_back({});
    ++lane_spans_.back().rows, lane_spans_.back().last = position_[i];
  }
}

/// Nothing where the round is not one that comes again: only decode does, and not under the eyes of a probe
/// or a trace. Rows that come to the host in different ways (a sampled lane beside a greedy one) are rare.
std::optional<RecordKey> Round::record_key() const {
  const bool again =
      phase_ == Phase::decode && !e_.device_->host_visible() && !e_.options_.probe && !e_.trace_;
  if (!again || outputs_.empty() || outputs_.size() > head_rows) return std::nullopt;
  const Output& first = outputs_.front();
  if (!std::all_of(outputs_.begin(), outputs_.end(), [&](const Output& o) { return o.same_way(first); }))
    return std::nullopt;
  RecordKey key;
  key.rows = static_cast<int>(token_.size());
  key.outputs = static_cast<int>(outputs_.size());
  const int longest = *std::max_element(position_.begin(), position_.end()) + 1;
  key.longest = shortest_recorded;
  while (key.longest < longest) key.longest *= 2;
  key.longest = std::min(key.longest, e_.context());
  key.flavour = (first.logits ? 1u : 0u) | (first.ban ? 2u : 0u) | (rows_are_lone(lane_) ? 4u : 0u);
  return key;
}

void Round::upload() {
  if (!e_.device_->host_visible()) e_.device_->begin_role(Role::upload);
  e_.device_->upload(device_batch_.data(), batch_.data(),
                     (3 * token_.size() + outputs_.size()) * sizeof(int32_t));
}

void Round::forward(const std::atomic<bool>* cancel) {
  ForwardArgs args;
  args.rows = rows_;
  args.kv = e_.kv_->layers();
  args.rope = e_.rope_table_;
  args.experts = e_.runner_.get();
  args.faults = &faults_;
  args.cancel = cancel;
  args.probe = e_.options_.probe;
  if (args.probe) {
    std::vector<int32_t> requests;
    for (const int32_t lane : lane_) requests.push_back(e_.lanes_[static_cast<size_t>(lane)].id);
    args.probe->begin_batch(requests, position_);
  }
  e_.family_->forward(args);
}

/// The head for the outputs from `first` on, as many as it takes, and what brings the results to the host.
void Round::head(size_t first) {
  Device& d = *e_.device_;
  const auto outputs = slice(first);
  const auto vocab = static_cast<size_t>(e_.config().vocab);
  e_.family_->head(device_index_ + first, static_cast<int>(outputs.size()), logits_.as<float>());
  bool chosen = false;
  for (size_t begin = 0, end; begin < outputs.size(); begin = end) {
    for (end = begin + 1; end < outputs.size() && outputs[end].same_way(outputs[begin]);) ++end;
    const float* logits = logits_.as<float>() + begin * vocab;
    if (outputs[begin].logits) {
      d.download(host_logits_.as<float>() + begin * vocab, logits, (end - begin) * vocab * sizeof(float));
      continue;
    }
    const size_t banned = outputs[begin].ban ? e_.end_tokens_.size() : 0;
    d.choose({logits, static_cast<int>(end - begin), e_.config().vocab, end_tokens_.as<int32_t>(),
              static_cast<int>(banned), choices_.as<Choice>() + begin, e_.tokenizer().size()});
    chosen = true;
  }
  if (chosen) d.download(host_choices_.data(), choices_.data(), outputs.size() * sizeof(Choice));
}

std::span<const Round::Output> Round::slice(size_t first) const {
  return std::span(outputs_).subspan(first, std::min<size_t>(head_rows, outputs_.size() - first));
}

const std::atomic<bool>* Round::shared_cancel() const {
  const std::atomic<bool>* cancel = nullptr;
  for (const int32_t index : lane_) {
    const auto* other = e_.lanes_[static_cast<size_t>(index)].request.cancel;
    if (!other || (cancel && cancel != other)) return nullptr;
    cancel = other;
  }
  return cancel;
}

void Round::drop_cancelled() {
  const auto* cancel = shared_cancel();
  if (!cancel || !cancel->load(std::memory_order_relaxed)) return;
  for (size_t i = 0; i < lane_.size(); ++i) {
    Lane& lane = e_.lanes_[static_cast<size_t>(lane_[i])];
    if (!lane.open) continue;
    lane.evaluated = position_[i];  // what this round began with: its results are void
    finish(lane, Finish::cancelled);
  }
}

void Round::fail_lanes() {
  for (const auto& fault : faults_) {
    Lane& lane = e_.lanes_[static_cast<size_t>(lane_[static_cast<size_t>(fault.row)])];
    if (lane.open) fail(lane, fault.message);
  }
}

void Round::decide() {
  for (size_t first = 0; first < outputs_.size(); first += head_rows) {
    if (first > 0) {
      head(first);
      e_.device_->synchronize();
    }
    decide_slice(slice(first));
  }
  for (auto& lane : e_.lanes_)
    if (lane.open && phase_ == Phase::prefill && lane.request.on_prefill && lane.evaluated <= lane.prompt_n)
      lane.request.on_prefill(lane.evaluated, lane.prompt_n);
}

void Round::decide_slice(std::span<const Output> outputs) {
  const auto vocab = static_cast<size_t>(e_.config().vocab);
  const std::span<float> logits(host_logits_.as<float>(), head_rows * vocab);
  for (size_t i = 0; i < outputs.size(); ++i)
    decide_one(outputs[i], logits.subspan(i * vocab, vocab), host_choices_.as<Choice>()[i]);
}

/// `logits` where the output has them, else `choice`. No one gets to see logits that are not finite, whoever
/// asked for them.
void Round::decide_one(const Output& output, std::span<float> logits, const Choice& choice) {
  Lane& lane = e_.lanes_[static_cast<size_t>(output.lane)];
  if (!lane.open) return;
  enter_role(e_.ledger(), Role::sample);
  const Request& r = lane.request;
  const int64_t bad = output.logits ? sampler_.read(logits) : choice.first_not_finite;
  if (bad >= 0) return fail_not_finite(lane, output.position, bad);
  if (output.show) show(lane, output, logits);
  if (!output.sample) return;
  enter_role(e_.ledger(), Role::sample);
  if (r.hash_logits) lane.logits_hash.add_words(logits.data(), logits.size_bytes());
  const size_t made = lane.result.tokens.size();
  if (made < r.forced.size()) return deliver(lane, r.forced[made]);
  deliver(lane, output.logits ? sample(lane, output, logits) : choice.token);
}

void Round::show(const Lane& lane, const Output& output, std::span<const float> logits) {
  enter_role(e_.ledger(), Role::reply);
  lane.request.on_logits(output.position, logits);
}

Token Round::sample(const Lane& lane, const Output& output, std::span<float> logits) {
  const Request& r = lane.request;
  if (r.ignore_eos)
    for (const Token end : e_.end_tokens_)
      logits[static_cast<size_t>(end)] = -std::numeric_limits<float>::infinity();
  return sampler_.choose(lane.tokens, r.sampler, output.position + 1);
}

void Round::deliver(Lane& lane, Token token) {
  enter_role(e_.ledger(), Role::reply);
  const Request& r = lane.request;
  lane.steps += phase_ == Phase::decode;
  lane.last_token_ns = now_ns();
  if (lane.first_token_ns == 0) lane.first_token_ns = lane.last_token_ns;
  if (!r.ignore_eos && r.forced.empty() && e_.tokenizer().is_end(token))
    return finish(lane, Finish::end_of_text);
  lane.tokens.push_back(token);
  lane.tokens_hash.add_value(token);
  lane.result.tokens.push_back(token);
  if (r.on_token) r.on_token(token);
  if (r.max_tokens >= 0 && static_cast<int>(lane.result.tokens.size()) >= r.max_tokens)
    return finish(lane, Finish::length);
  if (static_cast<int>(lane.tokens.size()) >= e_.context()) finish(lane, Finish::context);
}

void Round::close_finished() {
  for (auto& lane : e_.lanes_)
    if (lane.open && lane.request.max_tokens == 0 && lane.evaluated >= lane.prompt_n)
      finish(lane, Finish::length);
}

void Round::finish(Lane& lane, Finish why) {
  const uint64_t now = now_ns();
  if (lane.first_token_ns == 0) lane.first_token_ns = lane.last_token_ns = now;
  Result& result = lane.result;
  result.id = lane.id;
  result.finish = why;
  result.tokens_hash = lane.tokens_hash.value();
  result.logits_hash = lane.logits_hash.value();
  result.timings.prompt_n = std::min(lane.prompt_n, lane.evaluated);
  result.timings.predicted_n = static_cast<int>(result.tokens.size());
  result.timings.prompt_ms = static_cast<double>(lane.first_token_ns - lane.accepted_ns) * 1e-6;
  result.timings.predicted_ms = static_cast<double>(lane.last_token_ns - lane.first_token_ns) * 1e-6;
  result.timings.steps = lane.steps;
  e_.finished_.push_back(std::move(result));
  lane = Lane{};
}

void Round::fail_not_finite(Lane& lane, int position, int64_t token) {
  lane.result.error_kind = Error::Kind::input;
  fail(lane, fmt::format("{}: the logits of position {} are not finite (first at token {}): {}",
                         e_.model().path(), position, token, diagnose(lane.request.cancel)));
}

/// The resident tensors are looked through where they are, the experts in the file: those that a device
/// holds, or that lie in slots, came from there.
const std::string& Round::diagnose(const std::atomic<bool>* cancel) {
  if (diagnosis_) return *diagnosis_;
  std::string tensor = e_.weights_.first_not_finite(*e_.device_);
  if (tensor.empty()) tensor = first_not_finite_expert(e_.store_, cancel);
  const bool stopped = tensor.empty() && cancel && cancel->load(std::memory_order_relaxed);
  diagnosis_ = !tensor.empty()
                   ? fmt::format("tensor {} holds a NaN or an infinity; the file is damaged", tensor)
               : stopped ? "the search for the weight was interrupted"
                         : "every weight of the file is finite: the values left the range of float32";
  return *diagnosis_;
}

void Round::fail(Lane& lane, const std::string& why) {
  lane.result.error = why;
  finish(lane, Finish::failed);
}

}  // namespace weir
