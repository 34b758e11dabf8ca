// The runner against plain computation, bit for bit, whatever the slots, the policy, the way of reading and
// the order in which misses land; and faults that fail the rows they touch and no others.
#include "experts/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <set>

#include "experts/expert_fixture.h"

namespace weir {
namespace {

using test::ExpertFile;
using test::RandomBatch;
using testing::HasSubstr;

constexpr int max_rows = 40;

struct Bench {
  explicit Bench(const ExpertFile& file, int slots, ExpertPolicy policy = ExpertPolicy::lfu,
                 const ReaderOptions& options = {})
      : device(test::make_test_device(max_rows)),
        reader(ExpertReader::open(file.store.files(), options)),
        cache(*device, file.store, *reader, {slots, 0, slots}, policy),
        runner(*device, file.store, cache, max_rows, ExpertFile::top_k) {}
  /// h after each step of a mixed sequence of batches.
  std::vector<std::vector<float>> run_all(std::vector<RowFault>& faults) {
    std::vector<std::vector<float>> out;
    for (uint64_t step = 0; step < 24; ++step) {
      RandomBatch batch(rows_of(step), step);
      runner.run(batch.args(layer_of(step)), faults);
      out.push_back(batch.h);
    }
    return out;
  }
  static int rows_of(uint64_t step) { return step % 4 == 0 ? max_rows : 1 + static_cast<int>(step % 3); }
  static int layer_of(uint64_t step) { return step % 2 ? 0 : 2; }
  std::unique_ptr<Device> device;
  std::unique_ptr<ExpertReader> reader;
  ExpertCache cache;
  ExpertRunner runner;
};

class Runner : public testing::Test {
 protected:
  void SetUp() override {
    auto device = test::make_test_device(max_rows);
    for (uint64_t step = 0; step < 24; ++step)
      expected_.push_back(
          test::plain_result(file_, *device, Bench::layer_of(step), RandomBatch(Bench::rows_of(step), step)));
  }
  void expect_exact(Bench& bench, const std::string& what) {
    std::vector<RowFault> faults;
    const auto got = bench.run_all(faults);
    EXPECT_TRUE(faults.empty());
    for (size_t step = 0; step < got.size(); ++step)
      ASSERT_EQ(std::memcmp(got[step].data(), expected_[step].data(), got[step].size() * sizeof(float)), 0)
          << what << ", step " << step;
  }
  ExpertFile file_;
  std::vector<std::vector<float>> expected_;
};

TEST_F(Runner, IsExactForEverySlotCountAndPolicy) {
  for (const ExpertPolicy policy : {ExpertPolicy::lfu, ExpertPolicy::lru})
    for (const int slots : {1, 2, 3, 4, 6, 11, 12}) {
      Bench bench(file_, slots, policy);
      expect_exact(bench, fmt::format("{} slots, {}", slots, policy_name(policy)));
    }
}

TEST_F(Runner, IsExactForEveryWayOfReading) {
  for (const IoMode mode : {IoMode::direct, IoMode::buffered})
    for (const bool io_uring : {true, false}) {
      ReaderOptions options;
      options.mode = mode, options.io_uring = io_uring;
      Bench bench(file_, 4, ExpertPolicy::lfu, options);
      expect_exact(bench, bench.reader->description());
    }
}

TEST_F(Runner, IsExactInWhateverOrderMissesLand) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Bench bench(file_, 5);
    bench.runner.set_landing_order_seed(seed);
    expect_exact(bench, fmt::format("landing seed {}", seed));
  }
}

TEST_F(Runner, HitCountsDoNotDependOnHowReadsLand) {
  std::set<std::pair<uint64_t, uint64_t>> counts;
  for (uint64_t seed = 0; seed <= 5; ++seed) {
    ReaderOptions options;
    options.io_uring = seed % 2 == 0;
    Bench bench(file_, 4, ExpertPolicy::lfu, options);
    bench.runner.set_landing_order_seed(seed);
    std::vector<RowFault> faults;
    bench.run_all(faults);
    counts.emplace(bench.runner.totals().hits, bench.runner.totals().misses);
  }
  EXPECT_EQ(counts.size(), 1u);
  EXPECT_GT(counts.begin()->first, 0u);
}

TEST_F(Runner, CountersFollowTheSlots) {
  Bench few(file_, 3), all(file_, 12);
  std::vector<RowFault> faults;
  few.run_all(faults), all.run_all(faults);
  const ExpertCounters& f = few.runner.totals();
  const ExpertCounters& a = all.runner.totals();
  EXPECT_EQ(f.hits + f.misses, a.hits + a.misses);
  EXPECT_EQ(a.misses, 24u) << "with a slot for each, every expert is read once";
  EXPECT_EQ(a.reads, 12u * 3 + 12 * 2);
  EXPECT_GT(f.misses, 100u);
  EXPECT_GT(f.bytes_read, a.bytes_read);
  EXPECT_GE(a.bytes_read, file_.store.total_bytes());
}

TEST_F(Runner, ChargesWaitingOnlyWhereItWaitsAndTellsTheLedgerOfTraffic) {
  Bench bench(file_, 12);
  LedgerOptions options;
  options.enabled = true;
  Ledger ledger(options);
  bench.device->set_ledger(&ledger);
  bench.reader->set_ledger(&ledger);
  ledger.begin_generation();
  std::vector<RowFault> faults;
  const auto round = [&] {
    ledger.begin_round(Phase::decode);
    RandomBatch batch(4, 77);
    bench.runner.run(batch.args(0), faults);
    ledger.enter(Role::sample);
    return ledger.end_round(4, 1);
  };
  const RoundReport cold = round(), warm = round();
  EXPECT_GT(cold.experts.misses, 0u);
  EXPECT_EQ(cold.experts.hits, 0u);
  EXPECT_EQ(cold.experts.reads, 3 * cold.experts.misses);
  EXPECT_GT(cold.experts.read_busy_ns, 0u);
  EXPECT_GT(cold.role_ns[static_cast<int>(Role::schedule)], 0u);
  EXPECT_EQ(cold.role_ns[static_cast<int>(Role::experts_hit)], 0u);
  EXPECT_GT(cold.role_ns[static_cast<int>(Role::experts_miss)], 0u);
  EXPECT_EQ(warm.experts.misses, 0u);
  EXPECT_EQ(warm.experts.hits, cold.experts.misses);
  EXPECT_EQ(warm.experts.bytes_read, 0u);
  EXPECT_EQ(warm.role_ns[static_cast<int>(Role::expert_wait)], 0u);
  EXPECT_GT(warm.role_ns[static_cast<int>(Role::experts_hit)], 0u);
  ledger.end_generation();
  const PhaseAccount& phase = ledger.phase(Phase::decode);
  const uint64_t exposed = phase.roles[static_cast<int>(Role::expert_wait)].per_round.sum_ns;
  const uint64_t hidden = phase.roles[static_cast<int>(Role::expert_wait)].hidden_ns;
  EXPECT_LE(hidden, phase.experts.read_busy_ns);
  EXPECT_GE(hidden + exposed, phase.experts.read_busy_ns) << "what was not waited for was hidden";
}

TEST_F(Runner, AFailedReadFailsTheRowsThatNeedItAndTheOthersAreExact) {
  for (const int slots : {3, 5, 12}) {
    const ExpertFile file;
    Bench bench(file, slots);
    RandomBatch batch(max_rows, 5);
    const auto expected = test::plain_result(file, *bench.device, 2, batch);
    const ExpertPart& down = file.store.layer(2).parts[1];  // the last tensor: experts 10 and 11 are cut off
    ASSERT_EQ(::truncate(file.path.c_str(), static_cast<off_t>(down.offset + 10 * down.bytes + 7)), 0);
    std::vector<RowFault> faults;
    // What another batch left in the outputs must not leak into a sum.
    RandomBatch poison(max_rows, 6);
    for (float& x : poison.x) x = 3e38f;
    bench.runner.run(poison.args(0), faults);
    faults.clear();
    bench.runner.run(batch.args(2), faults);
    std::set<int> failed, needing;
    for (const RowFault& f : faults) {
      EXPECT_TRUE(failed.insert(f.row).second) << "a row fails once";
      EXPECT_THAT(f.message, HasSubstr(fmt::format("{}: wanted {} bytes at offset ", file.path, down.bytes)));
      EXPECT_THAT(f.message, HasSubstr("layer 2 expert 1"));
    }
    for (int r = 0; r < batch.rows; ++r) {
      for (size_t k = 0; k < 3; ++k)
        if (batch.ids[static_cast<size_t>(r) * 3 + k] >= 10) needing.insert(r);
      const float* got = batch.h.data() + r * 64;
      if (needing.count(r)) {
        for (int i = 0; i < 64; ++i) ASSERT_TRUE(std::isfinite(got[i]));
      } else {
        ASSERT_EQ(std::memcmp(got, expected.data() + r * 64, 64 * sizeof(float)), 0) << "row " << r;
      }
    }
    EXPECT_EQ(failed, needing);
    EXPECT_GT(failed.size(), 0u);
    EXPECT_LT(failed.size(), static_cast<size_t>(max_rows));
    EXPECT_EQ(bench.cache.slots(2).slot_of_expert[10], -1);
    // The process lives: rows without those experts go on.
    faults.clear();
    RandomBatch one(1, 5);
    one.ids = {0, 4, 9};
    const auto one_expected = test::plain_result(file, *bench.device, 0, one);
    bench.runner.run(one.args(0), faults);
    EXPECT_TRUE(faults.empty());
    EXPECT_EQ(std::memcmp(one.h.data(), one_expected.data(), 64 * sizeof(float)), 0);
  }
}

TEST_F(Runner, RecordsTheRouting) {
  const std::string path = file_.dir.file("routes");
  Bench bench(file_, 4);
  RouteTraceHeader header{file_.store.fingerprint(), 3, 3, {12, 0, 12}, {1, 0, 2}};
  RouteTraceWriter writer(path, header);
  bench.runner.set_trace(&writer);
  writer.begin_round(Phase::decode);
  RandomBatch batch(2, 8);
  std::vector<RowFault> faults;
  bench.runner.run(batch.args(2), faults);
  writer.close();
  const RouteTrace trace = RouteTrace::read(path);
  ASSERT_EQ(trace.records.size(), 1u);
  EXPECT_EQ(trace.records[0].layer, 2);
  EXPECT_EQ(std::vector<int32_t>(trace.records[0].ids.begin(), trace.records[0].ids.end()), batch.ids);
}

}  // namespace
}  // namespace weir
