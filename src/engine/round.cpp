#include "engine/round.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/clock.h"
#include "ledger/report.h"

namespace weir {

namespace {

constexpr auto head_rows = Family::head_rows;

/// Rows::longest and kv_positions of a batch: rows of one lane lie together.
void measure(Rows& rows, std::span<const int32_t> position, std::span<const int32_t> lane) {
  for (size_t i = 0; i < position.size(); ++i) {
    rows.longest = std::max(rows.longest, position[i] + 1);
    if (i + 1 == position.size() || lane[i + 1] != lane[i])
      rows.kv_positions += static_cast<uint64_t>(position[i]) + 1;
  }
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
  upload();
  forward();  // the layers; experts are awaited inside
  enter_role(ledger, Role::schedule);
  drop_cancelled();
  fail_lanes();  // rows whose experts could not be read take their lanes with them
  decide();      // head, sample, deliver: in slices of rows
  enter_role(ledger, Role::schedule);
  close_finished();
  close_account();
  return true;
}

void Round::close_account() {
  Ledger* ledger = e_.ledger();
  if (!ledger) return;
  e_.device_->file_imbalance();
  ledger->end_round(static_cast<int>(token_.size()), lanes_in_round_);
  log_round_line(ledger);
  const bool open =
      std::any_of(e_.lanes_.begin(), e_.lanes_.end(), [](const Lane& lane) { return lane.open; });
  if (!open && e_.waiting_.empty()) ledger->end_generation();
}

Round::Round(Engine& engine) : e_(engine), sampler_(engine.config().vocab) {
  const auto rows = static_cast<size_t>(std::max(e_.options_.prefill_chunk, e_.options_.lanes));
  const auto vocab = static_cast<size_t>(e_.config().vocab);
  Device& d = *e_.device_;
  device_token_ = d.allocate(rows * sizeof(int32_t), "batch tokens");
  device_position_ = d.allocate(rows * sizeof(int32_t), "batch positions");
  device_lane_ = d.allocate(rows * sizeof(int32_t), "batch lanes");
  device_index_ = d.allocate(head_rows * sizeof(int32_t), "output rows");
  logits_ = d.allocate(head_rows * vocab * sizeof(float), "logits");
  host_logits_.resize(head_rows * vocab);
  index_.resize(head_rows);
  for (auto* v : {&token_, &position_, &lane_}) v->reserve(rows);
  outputs_.reserve(rows);
}

uint64_t Round::bytes(int max_rows, int vocab) {
  const auto rows = static_cast<uint64_t>(max_rows);
  return rows * (6 * sizeof(int32_t) + sizeof(Output)) +
         2 * static_cast<uint64_t>(head_rows) * static_cast<uint64_t>(vocab) * sizeof(float) +
         static_cast<uint64_t>(vocab) * 12;  // the sampler's candidates and weights
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
    if (wanted || samples)
      outputs_.push_back({static_cast<int>(token_.size()), index, position, samples, wanted});
    token_.push_back(lane.tokens[static_cast<size_t>(position)]);
    position_.push_back(position);
    lane_.push_back(index);
  }
  lane.evaluated += count;
  ++lanes_in_round_;
}

void Round::upload() {
  const size_t bytes = token_.size() * sizeof(int32_t);
  e_.device_->upload(device_token_.data(), token_.data(), bytes);
  e_.device_->upload(device_position_.data(), position_.data(), bytes);
  e_.device_->upload(device_lane_.data(), lane_.data(), bytes);
}

void Round::forward() {
  ForwardArgs args;
  args.rows = {static_cast<int>(token_.size()), device_token_.as<int32_t>(), device_position_.as<int32_t>(),
               device_lane_.as<int32_t>()};
  measure(args.rows, position_, lane_);
  args.kv = e_.kv_->layers();
  args.rope = e_.rope_table_;
  args.experts = e_.runner_.get();
  args.faults = &faults_;
  args.cancel = shared_cancel();
  args.probe = e_.options_.probe;
  if (args.probe) {
    std::vector<int32_t> requests;
    for (const int32_t lane : lane_) requests.push_back(e_.lanes_[static_cast<size_t>(lane)].id);
    args.probe->begin_batch(requests, position_);
  }
  e_.family_->forward(args);
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
  for (size_t i = 0; i < outputs_.size(); i += head_rows)
    decide_slice(std::span(outputs_).subspan(i, std::min<size_t>(head_rows, outputs_.size() - i)));
  for (auto& lane : e_.lanes_)
    if (lane.open && phase_ == Phase::prefill && lane.request.on_prefill && lane.evaluated <= lane.prompt_n)
      lane.request.on_prefill(lane.evaluated, lane.prompt_n);
}

void Round::decide_slice(std::span<const Output> outputs) {
  const auto vocab = static_cast<size_t>(e_.config().vocab);
  const auto count = outputs.size();
  for (size_t i = 0; i < count; ++i) index_[i] = outputs[i].row;
  e_.device_->upload(device_index_.data(), index_.data(), count * sizeof(int32_t));
  e_.family_->head(device_index_.as<int32_t>(), static_cast<int>(count), logits_.as<float>());
  e_.device_->download(host_logits_.data(), logits_.data(), count * vocab * sizeof(float));
  e_.device_->synchronize();
  for (size_t i = 0; i < count; ++i) {
    Lane& lane = e_.lanes_[static_cast<size_t>(outputs[i].lane)];
    const auto logits = std::span(host_logits_).subspan(i * vocab, vocab);
    if (lane.open && outputs[i].show) show(lane, outputs[i], logits);
    if (lane.open && outputs[i].sample) sample(lane, outputs[i], logits);
  }
}

void Round::show(const Lane& lane, const Output& output, std::span<const float> logits) {
  enter_role(e_.ledger(), Role::reply);
  lane.request.on_logits(output.position, logits);
}

void Round::sample(Lane& lane, const Output& output, std::span<float> logits) {
  enter_role(e_.ledger(), Role::sample);
  const Request& r = lane.request;
  if (const int64_t bad = Sampler::first_not_finite(logits); bad >= 0)
    return fail_not_finite(lane, output.position, bad);
  if (r.hash_logits) lane.logits_hash.add_words(logits.data(), logits.size_bytes());
  if (r.ignore_eos)
    for (const Token end : e_.end_tokens_)
      logits[static_cast<size_t>(end)] = -std::numeric_limits<float>::infinity();
  const size_t made = lane.result.tokens.size();
  const Token token = made < r.forced.size()
                          ? r.forced[made]
                          : sampler_.choose(logits, lane.tokens, r.sampler, output.position + 1);
  deliver(lane, token);
}

void Round::deliver(Lane& lane, Token token) {
  enter_role(e_.ledger(), Role::reply);
  const Request& r = lane.request;
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
  e_.finished_.push_back(std::move(result));
  lane = Lane{};
}

void Round::fail_not_finite(Lane& lane, int position, int64_t token) {
  const std::string tensor = e_.weights_.first_not_finite();
  lane.result.error_kind = Error::Kind::input;
  fail(lane, fmt::format(
                 "{}: the logits of position {} are not finite (first at token {}): {}; the file is damaged",
                 e_.model().path(), position, token,
                 tensor.empty() ? "a weight of a routed expert is NaN or infinite"
                                : fmt::format("tensor {} holds a NaN or an infinity", tensor)));
}

void Round::fail(Lane& lane, const std::string& why) {
  lane.result.error = why;
  finish(lane, Finish::failed);
}

}  // namespace weir
