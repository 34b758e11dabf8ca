// What the tests of an engine on a device share: the pocket model on a DeferredDevice, and requests to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "support/deferred_device.h"
#include "support/paths.h"

namespace weir {

using test::DeferredDevice;
using ::testing::HasSubstr;

struct Deferred {
  DeferredDevice::Options options;
  std::shared_ptr<DeferredDevice::Counters> counters = std::make_shared<DeferredDevice::Counters>();
  void put_into(EngineOptions& o) const {
    o.make_device = [options = options, counters = counters] {
      return std::make_unique<DeferredDevice>(options, counters);
    };
  }
};

inline EngineOptions options() {
  EngineOptions o;
  o.model = testing::pocket_model();
  o.context = 300;
  o.threads = 2;
  return o;
}

inline Request request(int n, int prompt_tokens = 5) {
  Request r;
  for (int i = 0; i < prompt_tokens; ++i) r.prompt.push_back((i * 977 + 100) % 8000);
  r.max_tokens = n;
  r.sampler.greedy = true;
  r.ignore_eos = true;
  return r;
}

inline std::unique_ptr<Engine> open(const EngineOptions& o) {
  auto engine = std::make_unique<Engine>(o);
  engine->load();
  return engine;
}

/// All requests at once.
inline std::vector<Result> run_all(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& r : requests) engine.submit(r);
  while (engine.step()) {
  }
  auto results = engine.take_finished();
  std::sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.id < b.id; });
  return results;
}

inline void expect_equal(const std::vector<Result>& a, const std::vector<Result>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << i;
    EXPECT_EQ(a[i].logits_hash, b[i].logits_hash) << i;
    EXPECT_EQ(a[i].finish, b[i].finish) << i;
  }
}

/// What an engine with these options is refused for; "opened" where it is not.
inline std::string refusal(const EngineOptions& o) {
  try {
    const Engine engine(o);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "opened";
}

}  // namespace weir
