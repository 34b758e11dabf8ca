// What a request and the engine say of themselves: steps, expert traffic, the clock of a refused request, and
// the page cache's peak. One definition of each, on every device (docs/json.md).
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/device_cases.h"
#include "support/temp_dir.h"

namespace weir {
namespace {

uint64_t decode_rounds(Engine& engine) { return engine.ledger()->phase(Phase::decode).rounds.count; }

TEST(EngineAccount, ARoundThatMadeTheEndOfTextIsAStep) {
  EngineOptions o = options();
  o.ledger.enabled = true;
  for (const bool on_device : {false, true}) {
    const Deferred deferred;
    if (on_device) deferred.put_into(o);
    const auto engine = open(o);
    Request r;
    r.prompt = engine->tokenizer().encode(
        "<|im_start|>user\nWhat does the command grep do?<|im_end|>\n<|im_start|>assistant\n", {});
    r.sampler.greedy = true;
    r.max_tokens = 100;
    const Result ended = engine->run(r);
    ASSERT_EQ(ended.finish, Finish::end_of_text);
    EXPECT_EQ(ended.timings.predicted_n, std::ssize(ended.tokens));
    EXPECT_EQ(ended.timings.steps, std::ssize(ended.tokens))
        << "the first is the prompt's, the end is one more";
    EXPECT_EQ(static_cast<uint64_t>(ended.timings.steps), decode_rounds(*engine));
    EXPECT_EQ(engine->ledger()->phase(Phase::decode).tokens, decode_rounds(*engine));
    r.max_tokens = 5;
    const Result cut = engine->run(r);
    ASSERT_EQ(cut.finish, Finish::length);
    EXPECT_EQ(cut.timings.predicted_n, 5);
    EXPECT_EQ(cut.timings.steps, 4);
    EXPECT_EQ(decode_rounds(*engine), 4u);
    r.max_tokens = 1;
    EXPECT_EQ(engine->run(r).timings.steps, 0);
    EXPECT_EQ(decode_rounds(*engine), 0u);
  }
}

TEST(EngineAccount, HitsOfADeviceAreTheDistinctExpertsThatTheCpuCounts) {
  for (const bool ledger : {false, true}) {
    EngineOptions o = options();
    o.ledger.enabled = ledger;
    o.lanes = 3;
    ExpertCounters counted[2];
    uint64_t by_phase[2][2] = {};
    for (int side = 0; side < 2; ++side) {
      const Deferred deferred;
      if (side == 1) deferred.put_into(o);
      const auto engine = open(o);
      for (const Request& r : {request(11), request(30, 40), request(9, 7)}) engine->submit(r);
      while (engine->step()) {
      }
      counted[side] = engine->expert_counters();
      if (ledger)
        for (const Phase phase : {Phase::prefill, Phase::decode}) {
          const ExpertCounters& c = engine->ledger()->phase(phase).experts;
          by_phase[side][static_cast<int>(phase)] = c.hits + c.misses;
        }
      if (side == 1) {
        EXPECT_GT(deferred.counters->replays, 0);
      }
    }
    EXPECT_EQ(counted[1].hits, counted[0].hits + counted[0].misses);
    EXPECT_EQ(counted[1].misses, 0u);
    if (!ledger) continue;
    EXPECT_GT(by_phase[0][1], 0u);
    for (int phase = 0; phase < 2; ++phase) EXPECT_EQ(by_phase[1][phase], by_phase[0][phase]) << phase;
  }
}

TEST(EngineAccount, ARefusedRequestLeavesNoClockRunning) {
  EngineOptions o = options();
  o.ledger.enabled = true;
  const auto engine = open(o);
  engine->run(request(6));
  const uint64_t rounds = decode_rounds(*engine);
  Request bad = request(3);
  bad.prompt[2] = -1;
  EXPECT_THROW(engine->submit(bad), Error);
  EXPECT_FALSE(engine->ledger()->running());
  EXPECT_EQ(decode_rounds(*engine), rounds) << "the account of the request before is still there";
  engine->start_clock();  // as weir run does, ahead of tokenising
  EXPECT_THROW(engine->submit(bad), Error);
  EXPECT_FALSE(engine->ledger()->running());
  engine->pause_ledger(true);  // possible only while none runs
  engine->pause_ledger(false);

  engine->submit(request(4));
  EXPECT_THROW(engine->submit(bad), Error);
  EXPECT_TRUE(engine->ledger()->running()) << "another request waits";
  while (engine->step()) {
  }
  EXPECT_FALSE(engine->ledger()->running());
}

TEST(EngineAccount, ThePeakKeepsPagesThatAreGoneAtTheEnd) {
  const test::TempDir dir;
  EngineOptions o = options();
  std::filesystem::copy_file(o.model, dir.file("model.gguf"));
  o.model = dir.file("model.gguf");
  o.reader.mode = IoMode::buffered;
  o.expert_slots = 4;
  const auto engine = open(o);
  const int fd = ::open(o.model.c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  ::fdatasync(fd);
  std::string all(std::filesystem::file_size(o.model), ' ');
  std::ifstream(o.model).read(all.data(), static_cast<std::streamsize>(all.size()));
  const auto before = engine->memory_use().page_cache;
  engine->run(request(3));
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
  const MemoryUse use = engine->memory_use();
  if (!before || *use.page_cache > all.size() / 2)
    GTEST_SKIP() << "the kernel cannot tell, or keeps the pages";
  EXPECT_GE(*use.peak_page_cache, all.size() / 2);
  EXPECT_EQ(use.peak(), use.peak_rss + *use.peak_page_cache);
}

}  // namespace
}  // namespace weir
