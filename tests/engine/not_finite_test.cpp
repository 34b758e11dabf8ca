// A weight that is NaN or infinite, wherever it lies: the request fails, whatever it asked for, the tensor is
// named (a routed expert by its number), and no one has seen logits or tokens that follow from it.
#include <fmt/format.h>

#include <cmath>

#include "engine/device_cases.h"
#include "support/damage.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

struct Place {
  std::string tensor;
  int64_t row = 0;
  int experts = 0, expert_rows = 0;  ///< of a routed tensor: damaged from the first of these to expert 7
  std::string name() const { return experts ? tensor + fmt::format(", expert {}", experts) : tensor; }
};

/// A layer's experts have 32 rows of gate and up, 64 of down each. What expert 5 of layer 0 does to a row
/// reaches all later ones through layer 1; there only rows that choose a damaged expert feel it, so all but
/// expert 0 are.
std::vector<Place> places() {
  std::vector<Place> all{{"token_embd.weight", 7}, {"output_norm.weight"}, {"output.weight", 200}};
  for (const char* name : {"attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm",
                           "attn_k_norm", "ffn_norm", "ffn_gate_inp"})
    for (const char* layer : {"blk.0.", "blk.1."}) all.push_back({std::string(layer) + name + ".weight"});
  for (const auto& [name, rows] :
       {std::pair{"ffn_gate_exps", 32}, {"ffn_up_exps", 32}, {"ffn_down_exps", 64}}) {
    all.push_back({fmt::format("blk.0.{}.weight", name), 0, 5, rows});
    all.push_back({fmt::format("blk.1.{}.weight", name), 0, 1, rows});
  }
  return all;
}

class NotFinite : public ::testing::Test {
 protected:
  EngineOptions damaged(const Place& place, bool infinite = false) {
    EngineOptions o;
    o.model = test::write_tiny_model(dir_.file("tiny.gguf"));
    if (place.experts == 0) test::damage(o.model, place.tensor, place.row, infinite);
    for (int e = place.experts; e > 0 && e < 8; ++e)
      test::damage(o.model, place.tensor, int64_t{e} * place.expert_rows, infinite);
    o.context = 100;
    o.threads = 2;
    return o;
  }
  /// Every expert of layer 0 takes part in it.
  static Request prompt(int n) {
    Request r = request(n, 0);
    for (int i = 0; i < 60; ++i) r.prompt.push_back(i * 7 % 250);
    return r;
  }
  /// What weir run, run -n 0 --logits, perplexity and bench ask for.
  static std::vector<Request> kinds(int& seen_bad) {
    std::vector<Request> all{prompt(4), prompt(0), prompt(4)};
    all[1].on_logits = [&](int, std::span<const float> logits) {
      for (const float x : logits) seen_bad += !std::isfinite(x);
    };
    all[2].forced = {1, 2, 3, 4};
    return all;
  }
  static void expect_failures(const EngineOptions& o, const std::string& name) {
    const auto engine = open(o);
    int seen_bad = 0;
    for (const Request& r : kinds(seen_bad)) {
      const Result result = engine->run(r);
      EXPECT_EQ(result.finish, Finish::failed) << name;
      EXPECT_EQ(result.error_kind, Error::Kind::input);
      EXPECT_THAT(result.error, HasSubstr("are not finite"));
      EXPECT_THAT(result.error, HasSubstr("tensor " + name + " holds a NaN or an infinity"));
      EXPECT_TRUE(result.tokens.empty()) << name << ": text from damaged weights";
    }
    EXPECT_EQ(seen_bad, 0) << name;
  }
  test::TempDir dir_;
};

TEST_F(NotFinite, EveryTensorFailsEveryKindOfRequestAndIsNamed) {
  int number = 0;
  for (const Place& place : places()) {
    EngineOptions o = damaged(place);
    o.isa = number++ % 2 == 0 ? Isa::automatic : Isa::scalar;
    expect_failures(o, place.name());
  }
}

TEST_F(NotFinite, EveryTensorFailsOnADeviceToo) {
  for (const Place& place : places()) {
    EngineOptions o = damaged(place);
    const Deferred deferred;
    deferred.put_into(o);
    expect_failures(o, place.name());
  }
}

TEST_F(NotFinite, AnInfinityIsNamedToo) {
  for (const char* tensor : {"blk.0.attn_v.weight", "blk.1.attn_k_norm.weight", "output_norm.weight"})
    expect_failures(damaged({tensor}, true), tensor);
}

TEST_F(NotFinite, AnExpertThatNoRowChoseChangesNothing) {
  EngineOptions o = damaged({"blk.0.ffn_up_exps.weight", 0, 7, 32});
  Request r = request(1, 0);
  r.prompt = {3};
  std::vector<Token> tokens;
  for (Token t = 0; t < 40 && tokens.empty(); ++t) {
    r.prompt = {t};
    tokens = open(o)->run(r).tokens;
  }
  ASSERT_EQ(tokens.size(), 1u) << "every token's expert is 7";
  o.model = test::write_tiny_model(dir_.file("sound.gguf"));
  EXPECT_EQ(open(o)->run(r).tokens, tokens);
}

TEST_F(NotFinite, WithSlotsForFewExpertsTheFileIsSearched) {
  EngineOptions o = damaged({"blk.0.ffn_down_exps.weight", 0, 5, 64});
  o.expert_slots = 2;
  o.reader.mode = IoMode::buffered;
  expect_failures(o, "blk.0.ffn_down_exps.weight, expert 5");
}

TEST_F(NotFinite, ValuesThatOverflowBlameNoTensor) {
  EngineOptions o;
  o.model = test::write_tiny_model(dir_.file("tiny.gguf"));
  o.context = 100;
  struct Overflow final : OperationProbe {
    void begin_batch(std::span<const int32_t>, std::span<const int32_t>) override {}
    void after(Device&, Operation operation, int layer, float* h, int64_t) override {
      if (operation == Operation::attention && layer == 1) h[3] = INFINITY;
    }
  } overflow;
  o.probe = &overflow;
  const Result result = open(o)->run(request(1, 1));
  EXPECT_EQ(result.finish, Finish::failed);
  EXPECT_THAT(result.error, HasSubstr("every weight of the file is finite"));
}

}  // namespace
}  // namespace weir
